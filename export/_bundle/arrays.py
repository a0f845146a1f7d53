"""Take arrays from callers: the right kind of numbers, in the model's own dtype, or a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import InputError
from .._standalone.verify import Case


def as_dtype(name: str, value: Any, dtype: str) -> np.ndarray:
    """Return `value` as an array of `dtype`: wider or narrower is converted, another kind of number is not.

    Args:
        name: What the message calls it, such as "Input `keys`".
        value: An array, or nested lists.
        dtype: The NumPy name of the dtype to return.

    Raises:
        InputError: It is no array, the kind differs (floats for integers, say), or a number does not fit.
    """
    try:
        array = np.asarray(value)
    except Exception as error:
        # nested lists of unequal lengths, or what an object that should turn into an array raises instead
        said = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{name} must be one array: {said}") from error
    is_text = array.dtype.kind in "SUT"  # NumPy lets a StringDType become bool
    if is_text or not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise InputError(f"{name} must be of dtype {dtype}. Received: {array.dtype}.")
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
        back = converted.astype(array.dtype)
    # there and back, since comparing an integer with a float rounds both
    if array.dtype.kind in "iu" and not (np.array_equal(back, array) and np.array_equal(converted, array)):
        raise InputError(f"{name} holds integers that do not fit {dtype}.")
    if array.dtype.kind == "f" and np.any(np.isinf(converted) & np.isfinite(array)):
        raise InputError(f"{name} holds numbers that are infinite in {dtype}.")
    return converted


def widened(case: Case, dtypes: Mapping[str, np.dtype[Any]]) -> Case:
    """Return a case with outputs in these dtypes where they are wider: JAX has 32 bits for what is declared to have 64.

    Args:
        case: The case.
        dtypes: By output; others stay as they are.
    """

    def wide(name: str, array: np.ndarray) -> np.ndarray:
        dtype = dtypes.get(name, array.dtype)
        return array.astype(dtype) if array.dtype.kind == dtype.kind and np.can_cast(array.dtype, dtype) else array

    return case._replace(outputs={name: wide(name, array) for name, array in case.outputs.items()})
