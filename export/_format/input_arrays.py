"""Validate arrays from callers and convert them to the dtypes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .dtypes import UNWRITABLE
from .manifest import Manifest, Spec
from .names import STRING, Case, ExportError


class InputError(ExportError):
    """Input names, dtypes or shapes do not fit the model."""


def as_dtype(name: str, value: Any, dtype: str) -> np.ndarray:
    """Return `value` as an array of `dtype`: wider or narrower is converted, another kind of number is not.

    Args:
        name: What the message calls it, such as "Input `keys`".
        value: An array, or nested lists.
        dtype: The dtype to return, as a manifest names it.

    Raises:
        InputError: It is no array, the kind differs (floats for integers, say), or a number does not fit.
    """
    if dtype == STRING:
        return _as_strings(name, value)
    try:
        array = np.asarray(value)
    except Exception as error:
        # nested lists of unequal lengths, or what an object that should turn into an array raises instead
        said = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{name} must be one array: {said}") from error
    is_text = array.dtype.kind in "SUT"  # NumPy lets a StringDType become bool
    if is_text or not np.can_cast(array.dtype, dtype, casting="same_kind"):
        kinds = array.dtype.kind in "biuf" and dtype != "bool"
        remedy = f' Convert it, as by `.astype("{dtype}")`: numbers of another kind are not taken.' if kinds else ""
        raise InputError(f"{name} must be of dtype {dtype}. Received: {array.dtype}.{remedy}")
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


def _as_strings(name: str, value: Any) -> np.ndarray:
    """Return an array of `str`, from one, from NumPy's own strings, or from nested lists.

    Raises:
        InputError: It holds something else, such as bytes, or a string that no file can hold.
    """
    try:
        array = (value if isinstance(value, np.ndarray) else np.asarray(value, object)).astype(object)
    except (ValueError, SystemError) as error:  # lists of unequal lengths, or what is no character
        raise InputError(f"{name} must be one array of strings: {error}") from error
    for each in array.flat:
        if not isinstance(each, str):
            remedy = " Decode them first, as by `numpy.char.decode(array, 'utf-8')`." if type(each) is bytes else ""
            raise InputError(f"{name} must hold strings. Received: {type(each).__name__}.{remedy}")
        if UNWRITABLE.search(each):
            raise InputError(f"{name} holds a string with a zero character or half of a pair, which no file can hold.")
    return array


def by_name(called: str, given: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return what is given by name: a mapping as it is, or arrays in the order of the names, one alone as it is.

    Args:
        called: What the message calls it.
        given: What is given.
        names: The names.

    Raises:
        InputError: There are not as many arrays as names.
    """
    if isinstance(given, Mapping):
        return given
    several = isinstance(given, list | tuple) and all(hasattr(each, "shape") for each in given)
    arrays = list(given) if several else [given]
    if len(arrays) != len(names) or isinstance(given, str | bytes):
        came = f"{len(arrays)} arrays" if several else type(given).__name__
        raise InputError(f"{called} must be a mapping from names to arrays, or arrays for {names}. Received: {came}.")
    return dict(zip(names, arrays, strict=True))


def checked_inputs(manifest: Manifest, inputs: Any) -> dict[str, np.ndarray]:
    """Return the inputs as arrays of the manifest's dtypes.

    Raises:
        InputError: A name is missing or unknown, a dtype cannot be converted, or a shape does not fit.
    """
    names = [spec.name for spec in manifest.inputs]
    inputs = by_name("Inputs", inputs, names)
    if missing := [name for name in names if name not in inputs]:
        raise InputError(f"Inputs {missing} are missing. The model takes {names}. Received: {list(inputs)}.")
    if unknown := [name for name in inputs if name not in names]:
        raise InputError(f"Inputs {unknown} are unknown. The model takes {names}.")
    sizes: dict[str, tuple[int, str]] = {}
    return {spec.name: _checked_input(spec, inputs[spec.name], sizes, manifest.multiples) for spec in manifest.inputs}


def _checked_input(
    spec: Spec, value: Any, sizes: dict[str, tuple[int, str]], multiples: Mapping[str, int]
) -> np.ndarray:
    name, shape = spec.name, spec.shape
    array = as_dtype(f"Input `{name}`", value, spec.dtype)
    if array.ndim != len(shape):
        lacks_batch = array.ndim == len(shape) - 1
        remedy = " One example needs a batch axis, `array[None]`." if lacks_batch else ""
        raise InputError(f"Input `{name}` must have shape {shape}. Received: {array.shape}.{remedy}")
    for want, have in zip(shape, array.shape, strict=True):
        known, whose = sizes.setdefault(want, (have, name)) if isinstance(want, str) else (want, name)
        rule = None
        if known != have:
            rule = f"`{want}` is {known} in input `{whose}`" if isinstance(want, str) else f"{want} is fixed"
        elif isinstance(want, str) and have % (step := multiples.get(want, 1)):
            rule = f"`{want}` is a multiple of {step}"
        if rule:
            raise InputError(f"Input `{name}` must have shape {shape}, where {rule}. Received: {array.shape}.")
    return array


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
