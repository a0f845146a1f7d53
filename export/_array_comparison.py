"""Compare arrays within a tolerance."""

import numpy as np

from ._format.names import Arrays


def alike(actual: np.ndarray, expected: np.ndarray, *, rtol: float = 0.0, atol: float | np.ndarray = 0.0) -> bool:
    """Tell whether two arrays have one shape, and floats in them differ by no more than rounding may do.

    All else must be equal. NaN is like NaN.

    Args:
        one: An array.
        other: The one that it is held to.
        rtol: The limit as a share of each number of the other.
        atol: What is added to that; an array is one number for each index of the last axis.
    """
    if actual.shape != expected.shape:
        return False
    if expected.dtype.kind not in "fcV":  # V: bfloat16
        return np.array_equal(actual, expected)
    left, right = (each.astype(np.promote_types(each.dtype, np.float64)) for each in (actual, expected))
    return bool(np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True).all())


def outputs_match(actual: Arrays, expected: Arrays) -> bool:
    """Return True if two implementations of one model give equal outputs, except for the order of their sums."""
    return all(_sums_match(actual[name], array) for name, array in expected.items())


def _sums_match(actual: np.ndarray, expected: np.ndarray) -> bool:
    if actual.dtype != expected.dtype:
        return False
    magnitudes = (
        np.abs(np.nan_to_num(expected.astype(np.float64), posinf=0, neginf=0)) if expected.dtype.kind == "f" else 0
    )
    return alike(actual, expected, rtol=1e-5, atol=1e-6 * np.max(magnitudes, initial=0.0))
