"""Comparisons of floating-point arrays with one table of tolerances by dtype."""

import numpy as np

# Pairs (relative, absolute) for each dtype. They are a few times the rounding error of a weighted mean of values of
# magnitude 1 with softmax weights.
TOLERANCES = {
    "float64": (1e-12, 1e-12),
    "float32": (1e-5, 2e-6),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
}


def assert_close(actual, expected, dtype=None, *, tolerance=None):
    """Assert that two arrays have the same shape, the same dtype, no NaN, and values that differ within the tolerance.

    Args:
        actual: The array under test.
        expected: The reference.
        dtype: Dtype that `actual` must have; by default the dtype of `expected`.
        tolerance: One number, used as relative and as absolute tolerance. By default both come from `TOLERANCES`.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    _assert_same_shape_and_dtype(actual, expected, dtype)
    relative, absolute = TOLERANCES[actual.dtype.name] if tolerance is None else (tolerance, tolerance)
    arrays = actual.astype("float64"), expected.astype("float64")
    np.testing.assert_allclose(*arrays, rtol=relative, atol=absolute, equal_nan=False)


def assert_identical(actual, expected):
    """Assert equal shapes, then equal dtypes, then identical values; 0.0 and -0.0 are equal."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    _assert_same_shape_and_dtype(actual, expected, None)
    num_different = int(np.sum(~(actual == expected)))
    assert num_different == 0, f"{num_different} of {actual.size} values differ: {actual} is not {expected}"


def _assert_same_shape_and_dtype(actual, expected, dtype):
    assert actual.shape == expected.shape, f"shape {actual.shape}, must be {expected.shape}"
    expected_dtype = expected.dtype.name if dtype is None else dtype
    assert actual.dtype.name == expected_dtype, f"dtype {actual.dtype.name}, must be {expected_dtype}"
