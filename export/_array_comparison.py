"""Compare arrays within a tolerance."""

import numpy as np

from ._format.names import Arrays


def alike(one: np.ndarray, other: np.ndarray, *, rtol: float = 0.0, atol: float | np.ndarray = 0.0) -> bool:
    """Tell whether two arrays have one shape, and floats in them differ by no more than rounding may do.

    All else must be equal. NaN is like NaN.

    Args:
        one: An array.
        other: The one that it is held to.
        rtol: The limit as a share of each number of the other.
        atol: What is added to that; an array is one number for each index of the last axis.
    """
    if one.shape != other.shape:
        return False
    if other.dtype.kind not in "fcV":  # V: bfloat16
        return np.array_equal(one, other)
    left, right = (each.astype(np.promote_types(each.dtype, np.float64)) for each in (one, other))
    return bool(np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True).all())


def outputs_match(actual: Arrays, expected: Arrays) -> bool:
    """Return True if two implementations of one model give equal outputs, except for the order of their sums."""
    return all(_sums_match(actual[name], array) for name, array in expected.items())


def _sums_match(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype:
        return False
    sizes = np.abs(np.nan_to_num(other.astype(np.float64), posinf=0, neginf=0)) if other.dtype.kind == "f" else 0
    return alike(one, other, rtol=1e-5, atol=1e-6 * np.max(sizes, initial=0.0))
