"""Validation of arrays from callers, and their conversion to the dtypes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .dtypes import UNWRITABLE_CHARACTER
from .manifest import Manifest, Spec
from .names import STRING, Case, ExportError, first_line


class InputError(ExportError):
    """Input names, dtypes or shapes do not fit the model."""


def convert_array(name: str, value: Any, dtype: str) -> np.ndarray:
    """Convert an array or nested lists to a dtype of the manifest; messages begin with `name`.

    Numbers are converted to another width of their kind, and integers also to floats.

    Raises:
        InputError: If `value` is not an array, has another kind (floats for integers), or an element is out of range.
    """
    if dtype == STRING:
        return _as_strings(name, value)
    try:
        array = np.asarray(value)
    # A ValueError for nested lists of unequal lengths, or any error of an object's `__array__`.
    except Exception as error:
        raise InputError(f"{name} must be one array: {first_line(error)}") from error
    is_text = array.dtype.kind in "SUT"  # NumPy would cast a StringDType to bool
    if is_text or not np.can_cast(array.dtype, dtype, casting="same_kind"):
        is_numeric = array.dtype.kind in "biuf" and dtype != "bool"
        remedy = f' Convert it, as by `.astype("{dtype}")`: this cast can change values.' if is_numeric else ""
        raise InputError(f"{name} must be of dtype {dtype}. Received: {array.dtype}.{remedy}")
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
        restored = converted.astype(array.dtype)
    # Both directions are compared: NumPy compares int64 with float64 in float64, where 2**53 + 1 equals 2**53.
    if array.dtype.kind in "iu" and not (np.array_equal(restored, array) and np.array_equal(converted, array)):
        raise InputError(f"{name} holds integers that do not fit {dtype}.")
    if array.dtype.kind == "f" and np.any(np.isinf(converted) & np.isfinite(array)):
        raise InputError(f"{name} holds numbers that are infinite in {dtype}.")
    return converted


def _as_strings(name: str, value: Any) -> np.ndarray:
    """Convert an array of a NumPy string dtype, or nested lists, to an array of `str`."""
    try:
        array = (value if isinstance(value, np.ndarray) else np.asarray(value, object)).astype(object)
    except (ValueError, SystemError) as error:  # lists of unequal lengths, or invalid code points
        raise InputError(f"{name} must be one array of strings: {error}") from error
    for item in array.flat:
        if not isinstance(item, str):
            remedy = " Decode them first, as by `numpy.char.decode(array, 'utf-8')`." if type(item) is bytes else ""
            raise InputError(f"{name} must hold strings. Received: {type(item).__name__}.{remedy}")
        if UNWRITABLE_CHARACTER.search(item):
            raise InputError(f"{name} holds a zero character or half of a surrogate pair, which files cannot store.")
    return array


def map_to_names(subject: str, value: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return arrays by name: a mapping unchanged, arrays in the order of `names`, or one array for one name."""
    if isinstance(value, Mapping):
        return value
    is_list = isinstance(value, list | tuple) and all(hasattr(array, "shape") for array in value)
    arrays = list(value) if is_list else [value]
    if len(arrays) != len(names) or isinstance(value, str | bytes):
        received = f"{len(arrays)} arrays" if is_list else type(value).__name__
        message = f"{subject} must be a mapping from names to arrays, or arrays for {names}. Received: {received}."
        raise InputError(message)
    return dict(zip(names, arrays, strict=True))


def validate_inputs(manifest: Manifest, inputs: Any) -> dict[str, np.ndarray]:
    """Return the inputs by name in the dtypes of the manifest; raise `InputError` if names, dtypes or shapes differ."""
    names = [spec.name for spec in manifest.inputs]
    inputs = map_to_names("Inputs", inputs, names)
    if missing := [name for name in names if name not in inputs]:
        raise InputError(f"Inputs {missing} are missing. The model takes {names}. Received: {list(inputs)}.")
    if unknown := [name for name in inputs if name not in names]:
        raise InputError(f"Inputs {unknown} are unknown. The model takes {names}.")
    sizes: dict[str, tuple[int, str]] = {}
    return {spec.name: _validate_input(spec, inputs[spec.name], sizes, manifest.multiples) for spec in manifest.inputs}


def _validate_input(
    spec: Spec, value: Any, sizes: dict[str, tuple[int, str]], multiples: Mapping[str, int]
) -> np.ndarray:
    name, shape = spec.name, spec.shape
    array = convert_array(f"Input `{name}`", value, spec.dtype)
    if array.ndim != len(shape):
        lacks_batch = array.ndim == len(shape) - 1
        remedy = " One example needs a batch axis, `array[None]`." if lacks_batch else ""
        raise InputError(f"Input `{name}` must have shape {shape}. Received: {array.shape}.{remedy}")
    for size, actual_size in zip(shape, array.shape, strict=True):
        # The first input with a dynamic axis determines its size for the inputs after it.
        expected, source = sizes.setdefault(size, (actual_size, name)) if isinstance(size, str) else (size, name)
        rule = None
        if expected != actual_size:
            rule = f"`{size}` is {expected} in input `{source}`" if isinstance(size, str) else f"{size} is fixed"
        elif isinstance(size, str) and actual_size % (multiple := multiples.get(size, 1)):
            rule = f"`{size}` is a multiple of {multiple}"
        if rule:
            raise InputError(f"Input `{name}` must have shape {shape}, where {rule}. Received: {array.shape}.")
    return array


def widen_outputs(case: Case, dtypes: Mapping[str, np.dtype[Any]]) -> Case:
    """Return a case whose outputs are cast to `dtypes`, by output name, if these are wider dtypes of the same kind."""
    # JAX computes with 32 bits by default, although Keras declares int64 or float64 outputs.
    outputs = dict(case.outputs)
    for name, array in case.outputs.items():
        dtype = dtypes.get(name, array.dtype)
        if array.dtype.kind == dtype.kind and np.can_cast(array.dtype, dtype):
            outputs[name] = array.astype(dtype)
    return case._replace(outputs=outputs)
