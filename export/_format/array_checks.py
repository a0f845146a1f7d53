"""Checks of arrays against the inputs and outputs in a manifest."""

from collections.abc import Iterable, Sequence
from typing import Any

from .dtypes import numpy_dtype
from .manifest import Spec
from .names import Arrays, BundleError, dtype_name


def check_arrays(subject: str, kind: str, arrays: Arrays, specs: Iterable[Spec]) -> None:
    """Raise `BundleError` unless names, dtypes and static sizes of arrays fit; subject and kind begin the message."""
    by_name = {spec.name: spec for spec in specs}
    if arrays.keys() != by_name.keys():
        raise BundleError(f"{subject} with {kind}s {[*arrays][:9]}, and the manifest says {[*by_name][:9]}.")
    for name, array in arrays.items():
        spec = by_name[name]
        if array.dtype != numpy_dtype(spec.dtype) or not fits_shape(array.shape, spec.shape):
            actual = f"{dtype_name(array)} of shape {array.shape}"
            raise BundleError(
                f"{subject} with {kind} `{name}` in {actual}; the manifest says {spec.dtype} of {spec.shape}."
            )


def fits_shape(shape: Sequence[int], expected: Sequence[Any]) -> bool:
    """Return whether a shape has the expected rank and sizes; an expected size that is no integer fits any size."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(not isinstance(size, int) or own == size for own, size in pairs)
