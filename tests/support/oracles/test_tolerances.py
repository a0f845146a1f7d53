"""Array comparisons of the tests: they fail on differences."""

import numpy as np
import pytest
from tolerances import TOLERANCES, assert_close, assert_identical

ONES = np.ones((2, 3), "float32")
NAN = np.full((2, 3), np.nan, "float32")


@pytest.mark.parametrize("compare", [assert_close, assert_identical])
def test_comparison_checks_shape_and_dtype_before_values_and_refuses_nan(compare):
    compare(ONES, ONES.copy())
    with pytest.raises(AssertionError, match="shape"):
        compare(np.ones((3,), "float32"), ONES)
    with pytest.raises(AssertionError, match="dtype float64, must be float32"):
        compare(np.zeros((2, 3), "float64"), ONES)
    with pytest.raises(AssertionError):  # even if NaN is expected
        compare(NAN, NAN.copy())


@pytest.mark.parametrize("dtype", sorted(TOLERANCES))
def test_only_differences_above_the_tolerance_fail(dtype):
    relative, absolute = TOLERANCES[dtype]
    actual = np.asarray([1.0], np.dtype(dtype))
    assert_close(actual, np.asarray([1.0 + 0.5 * (relative + absolute)]), dtype)
    with pytest.raises(AssertionError):
        assert_close(actual, np.asarray([1.0 + 2.5 * (relative + absolute)]), dtype)


def test_tolerance_argument_replaces_the_table():
    assert_close(ONES, ONES + np.float32(0.1), tolerance=0.1)
    with pytest.raises(AssertionError):
        assert_close(ONES, ONES + np.float32(0.1))


def test_assert_identical_fails_at_the_last_bit_and_accepts_negative_zero():
    with pytest.raises(AssertionError, match="6 of 6"):
        assert_identical(np.nextafter(ONES, np.float32(2)), ONES)
    assert_identical(np.float32([-0.0]), np.float32([0.0]))
