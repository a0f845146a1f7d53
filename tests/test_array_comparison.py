"""Comparison of arrays within limits."""

import ml_dtypes
import numpy as np
import pytest

from keras_attn_export._array_comparison import arrays_match

NAN, INF = np.nan, np.inf
COLUMNS = np.array([0.0, 0.1])  # limits of two channels


@pytest.mark.parametrize(
    ("actual", "expected", "dtype", "limits", "is_match"),
    [
        ([1.0, NAN, INF], [1.0, NAN, INF], "float32", {}, True),
        ([1.0, NAN, INF], [1.0, NAN, -INF], "float32", {"atol": 9.0}, False),
        ([101.0], [100.0], "float32", {"rtol": 0.01}, True),
        ([100.0], [98.9], "float32", {"rtol": 0.01}, False),
        ([[1.0, 1.05]], [[1.0, 1.0]], "float32", {"atol": COLUMNS}, True),
        ([[1.05, 1.0]], [[1.0, 1.0]], "float32", {"atol": COLUMNS}, False),
        ([6e4], [-6e4], "float16", {"rtol": 2.01}, True),
        ([1.0], [1.0078125], ml_dtypes.bfloat16, {"rtol": 0.01}, True),
        ([100], [101], "int32", {"rtol": 0.1, "atol": 9}, False),
        ([[1.0]], [1.0], "float32", {}, False),
        ([], [], "float32", {}, True),
    ],
)
def test_arrays_match_within_the_limits(actual, expected, dtype, limits, is_match):
    """In float16 a difference of 120,000 would be infinite."""
    assert arrays_match(np.array(actual, dtype), np.array(expected, dtype), **limits) is is_match
