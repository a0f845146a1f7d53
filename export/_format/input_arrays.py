"""Validate arrays from callers and convert them to the dtypes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .dtypes import UNWRITABLE
from .manifest import Manifest, Spec
from .names import STRING, Case, ExportError, first_line


class InputError(ExportError):
    """Input names, dtypes or shapes do not fit the model."""


def as_dtype(name: str, value: Any, dtype: str) -> np.ndarray:
    """Return an array or nested lists as an array of a manifest's dtype; messages begin with `name`.

    Numbers of another width are converted, and integers to floats.

    Raises:
        InputError: If `value` is no array, is of another kind (such as floats for integers), or a number does not fit.
    """
    if dtype == STRING:
        return _as_strings(name, value)
    try:
        array = np.asarray(value)
    except Exception as error:  # nested lists of unequal lengths, or any error of an object's `__array__`
        raise InputError(f"{name} must be one array: {first_line(error)}") from error
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
    """Return arrays of NumPy's string dtypes, or nested lists, as an array of `str`."""
    try:
        array = (value if isinstance(value, np.ndarray) else np.asarray(value, object)).astype(object)
    except (ValueError, SystemError) as error:  # lists of unequal lengths, or invalid code points
        raise InputError(f"{name} must be one array of strings: {error}") from error
    for item in array.flat:
        if not isinstance(item, str):
            remedy = " Decode them first, as by `numpy.char.decode(array, 'utf-8')`." if type(item) is bytes else ""
            raise InputError(f"{name} must hold strings. Received: {type(item).__name__}.{remedy}")
        if UNWRITABLE.search(item):
            raise InputError(f"{name} holds a string with a zero character or half of a pair, which no file can hold.")
    return array


def by_name(subject: str, value: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return arrays by name: a mapping unchanged, or a list in the order of the names; a single array needs no list."""
    if isinstance(value, Mapping):
        return value
    is_list = isinstance(value, list | tuple) and all(hasattr(array, "shape") for array in value)
    arrays = list(value) if is_list else [value]
    if len(arrays) != len(names) or isinstance(value, str | bytes):
        received = f"{len(arrays)} arrays" if is_list else type(value).__name__
        message = f"{subject} must be a mapping from names to arrays, or arrays for {names}. Received: {received}."
        raise InputError(message)
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
    """Return a case with outputs in wider dtypes of the same kind: JAX computes with 32 bits if 64 are declared."""
    outputs = dict(case.outputs)
    for name, array in case.outputs.items():
        dtype = dtypes.get(name, array.dtype)
        if array.dtype.kind == dtype.kind and np.can_cast(array.dtype, dtype):
            outputs[name] = array.astype(dtype)
    return case._replace(outputs=outputs)
