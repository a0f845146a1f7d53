"""Comparison of arrays within a tolerance."""

import numpy as np

from ._format.names import Arrays


def arrays_match(
    actual: np.ndarray, expected: np.ndarray, *, rtol: float = 0.0, atol: float | np.ndarray = 0.0
) -> bool:
    """Return True if two arrays have the same shape and each |actual - expected| <= atol + rtol * |expected|.

    Arrays that are not floats must be equal. NaN equals NaN.

    Args:
        actual: An array of any dtype.
        expected: The array to compare with.
        rtol: The tolerance relative to the expected element.
        atol: The absolute tolerance: a number, or an array of shape (last axis of `expected`,).
    """
    if actual.shape != expected.shape:
        return False
    # NumPy reports bfloat16, a type of ml_dtypes, as kind "V".
    if expected.dtype.kind not in "fcV":
        return np.array_equal(actual, expected)
    left, right = (array.astype(np.promote_types(array.dtype, np.float64)) for array in (actual, expected))
    return bool(np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True).all())


def outputs_match(actual: Arrays, expected: Arrays) -> bool:
    """Return True if two implementations of a model have equal outputs, except for the rounding of their sums."""
    return all(_match_up_to_sums(actual[name], array) for name, array in expected.items())


def _match_up_to_sums(actual: np.ndarray, expected: np.ndarray) -> bool:
    if actual.dtype != expected.dtype:
        return False
    finite = np.nan_to_num(expected.astype(np.float64), posinf=0, neginf=0) if expected.dtype.kind == "f" else 0
    # A small element may be the difference of large ones, so the absolute tolerance is relative to the largest element.
    return arrays_match(actual, expected, rtol=1e-5, atol=1e-6 * np.max(np.abs(finite), initial=0.0))
