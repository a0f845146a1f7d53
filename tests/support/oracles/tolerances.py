"""One table of tolerances by dtype, and the only way the tests compare floating-point arrays."""

import numpy as np

TOLERANCES = {  # dtype: (relative, absolute), a few times the rounding of one softmax and one weighted sum of unit size
    "float64": (1e-12, 1e-12),
    "float32": (1e-5, 2e-6),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
}
"""An override is given at the call, as `tolerance=`, with its reason beside it."""


def assert_close(actual, expected, dtype=None, *, tolerance=None):
    """Checks shape, then dtype (of `expected` unless given), then values, NaN counting as a mismatch.

    A tolerance is relative and absolute at once, in place of the table.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    _assert_same_kind(actual, expected, dtype)
    relative, absolute = TOLERANCES[actual.dtype.name] if tolerance is None else (tolerance, tolerance)
    np.testing.assert_allclose(
        actual.astype("float64"), expected.astype("float64"), rtol=relative, atol=absolute, equal_nan=False
    )


def assert_identical(actual, expected):
    """Checks shape, then dtype, then that the values are the same bit for bit (0.0 and -0.0 count as the same)."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    _assert_same_kind(actual, expected, None)
    differing = int(np.sum(~(actual == expected)))
    assert differing == 0, f"{differing} of {actual.size} values differ: {actual} is not {expected}"


def _assert_same_kind(actual, expected, dtype):
    assert actual.shape == expected.shape, f"shape {actual.shape}, must be {expected.shape}"
    wanted = expected.dtype.name if dtype is None else dtype
    assert actual.dtype.name == wanted, f"dtype {actual.dtype.name}, must be {wanted}"
