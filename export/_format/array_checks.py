"""Checks of arrays against the inputs and outputs in a manifest."""

from collections.abc import Iterable, Sequence
from typing import Any

from .dtypes import numpy_dtype
from .manifest import Spec
from .names import Arrays, BundleError, dtype_name


def check_arrays(subject: str, kind: str, arrays: Arrays, specs: Iterable[Spec]) -> None:
    """Raise `BundleError` if names, dtypes or static sizes of arrays do not fit; `subject` begins the message."""
    expected = {spec.name: spec for spec in specs}
    if arrays.keys() != expected.keys():
        raise BundleError(f"{subject} with {kind}s {[*arrays][:9]}, and the manifest says {[*expected][:9]}.")
    for name, array in arrays.items():
        spec = expected[name]
        if array.dtype != numpy_dtype(spec.dtype) or not fits_shape(array.shape, spec.shape):
            actual = f"{dtype_name(array)} of shape {array.shape}"
            raise BundleError(
                f"{subject} with {kind} `{name}` in {actual}; the manifest says {spec.dtype} of {spec.shape}."
            )


def fits_shape(shape: Sequence[int], expected: Sequence[Any]) -> bool:
    """Return True if a shape has the expected rank and static sizes; the name of an axis fits every size."""
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(not isinstance(size, int) or size == actual for actual, size in pairs)
