"""Checks of arrays against the inputs and outputs in a manifest."""

from collections.abc import Iterable

import numpy as np

from .dtypes import numpy_dtype
from .manifest import Spec
from .names import Arrays, BundleError, dtype_name


def check_arrays(subject: str, kind: str, arrays: Arrays, specs: Iterable[Spec]) -> None:
    """Check names, dtypes and static sizes of arrays; sizes of dynamic axes are not compared.

    Args:
        subject: Beginning of the error message.
        kind: `input` or `output`, for the error message.
        arrays: Arrays by name.
        specs: Inputs or outputs of a manifest.

    Raises:
        BundleError: If the arrays do not fit.
    """
    by_name = {spec.name: spec for spec in specs}
    if arrays.keys() != by_name.keys():
        raise BundleError(f"{subject} with {kind}s {[*arrays][:9]}, and the manifest says {[*by_name][:9]}.")
    for name, array in arrays.items():
        spec = by_name[name]
        if array.dtype != numpy_dtype(spec.dtype) or not _fits(array, spec):
            actual = f"{dtype_name(array)} of shape {array.shape}"
            raise BundleError(
                f"{subject} with {kind} `{name}` in {actual}; the manifest says {spec.dtype} of {spec.shape}."
            )


def _fits(array: np.ndarray, spec: Spec) -> bool:
    sizes = zip(array.shape, spec.shape, strict=False)
    return array.ndim == len(spec.shape) and all(
        isinstance(expected, str) or actual == expected for actual, expected in sizes
    )
