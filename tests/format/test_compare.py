"""Comparison of outputs with golden cases."""

import itertools
from types import MappingProxyType

import numpy as np
import pytest

from keras_attn_export._format.compare import compare, scale_of, zero_fill_values
from keras_attn_export._format.names import Case
from keras_attn_export._format.printing import format_rows
from keras_attn_export._format.providers import PROVIDERS

TOLERANCE = {"relative": 1e-5, "absolute": 1e-6}


def floats(*values, dtype="float32"):
    return np.array(values, dtype)


def rows_of(case, expected, actual, tolerance, rounding=MappingProxyType({})):
    return compare(Case(case, {}, expected, rounding), actual, tolerance)


ODD = (np.nan, np.inf, -np.inf)


def one_more_in_front(array):
    """Return another array, with 1 added to its first row."""
    other = array.copy()
    other[0] += other.dtype.type(1)
    return other


def test_row_describes_one_comparison():
    (row,) = rows_of("keys 17", {"out": floats([2, 4, -8])}, {"out": floats([2, 4.5, -8])}, TOLERANCE)
    assert row == {
        "name": "out",
        "case": "keys 17",
        "shape": [1, 3],
        "dtype": "float32",
        "max_abs": 0.5,
        "max_rel": 0.5 / 4,
        "of_limit": 0.5 / 4e-5,
        "ties": 0,
        "tolerance": TOLERANCE,
        "passed": False,
        "problem": "is outside the tolerance",
    }


def test_all_problems_of_a_case_are_rows():
    expected = {"gone": floats(1), "shape": floats(1, 2), "dtype": floats(1), "value": floats(1), "good": floats(1)}
    actual = {
        "extra": np.array([1]),
        "shape": floats(1),
        "dtype": floats(1, dtype="float64"),
        "value": floats(2),
        "good": floats(1),
    }
    assert {row["name"]: row["problem"] for row in rows_of("base", expected, actual, TOLERANCE)} == {
        "gone": "is missing",
        "shape": "has shape (1,), expected (2,)",
        "dtype": "has dtype float64, expected float32",
        "value": "is outside the tolerance",
        "good": None,
        "extra": "was not expected",
    }


OUTSIDE, ELSEWHERE = "is outside the tolerance", "has NaN or infinity in other places than expected"
WIDE = {"relative": 1, "absolute": 9}
INTEGERS = np.array([[1, 2], [3, 4]], "int32"), np.array([[2**62, 1], [0, 5]]), np.zeros((2, 2), bool)
JUDGED = [  # expected, actual, tolerance, what is said
    *(  # either tolerance is enough: the difference is 5e-3, and 5e-4 of 10
        (floats(10, 1, dtype="float64"), floats(10, 1.005, dtype="float64"), dict(relative=r, absolute=a), said)
        for r, a, said in ((1e-3, 1e-2, None), (1e-3, 1e-4, None), (1e-5, 1e-2, None), (1e-5, 1e-4, OUTSIDE))
    ),
    (floats(1), floats(1.5), {"relative": 0.5, "absolute": 0}, None),  # exactly the tolerance
    (floats(0, 0), floats(0, 1e-3), TOLERANCE, OUTSIDE),
    *((floats(1, odd, 2), floats(1, odd, 2), TOLERANCE, None) for odd in ODD),
    *((floats(1, odd, 2), floats(1, odd, 3), TOLERANCE, OUTSIDE) for odd in ODD),
    *(
        (floats(1, one), floats(1, other), TOLERANCE, ELSEWHERE)
        for one, other in itertools.permutations((1.0, *ODD), 2)
    ),
    *((expected, expected.copy(), WIDE, None) for expected in INTEGERS),
    # two places, each within the tolerances that floats would have
    *((expected, one_more_in_front(expected), WIDE, "differs in 2 of 4 elements") for expected in INTEGERS),
    (np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32"), TOLERANCE, None),
    (np.float32(2), np.float32(3), TOLERANCE, OUTSIDE),
]


def test_outputs_pass_within_either_tolerance():
    for expected, actual, tolerance, said in JUDGED:
        (row,) = rows_of("base", {"out": expected}, {"out": actual}, tolerance)
        assert (row["problem"], row["passed"]) == (said, said is None), (expected, actual)
        assert said != OUTSIDE or expected.any() or row["max_rel"] == float("inf")


def test_half_precision_is_compared_in_double():
    expected, actual = floats(60000, dtype="float16"), floats(-60000, dtype="float16")
    (row,) = rows_of("base", {"out": expected}, {"out": actual}, TOLERANCE)
    assert row["max_abs"] == 2 * float(expected[0])  # infinite in float16


FILLS = (-1e9, -3.4e38, -1e4, -np.inf, np.inf)
SCALES = [  # an array, and the scale of each of its numbers; `...` where that of a fill says nothing
    (  # a large number elsewhere has no say: the smaller of row and channel
        [[1e6, 0.5, 0.001], [2e6, 0.25, 0.002], [1e-3, 1e-4, 1e-5]],
        [[1e6, 0.5, 0.002], [2e6, 0.5, 0.002], [1e-3, 1e-3, 1e-3]],
    ),
    *(
        ([[1.0, fill, 0.1], [fill, 2.0, 0.2], [fill, fill, 0.3]], [[1.0, ..., 0.3], [..., 2.0, 0.3], [..., ..., 0.3]])
        for fill in FILLS
    ),
    (  # fills to which scores were added
        [[0.5, -1e9 + 300], [0.25, 4.0], [-1e9 - 80, -1e9]],
        [[0.5, ...], [0.5, ...], [..., ...]],
    ),
    ([[3.0], [-2.0], [0.001]], [[3.0], [3.0], [3.0]]),  # a row of one number is seen against its channel
    ([3.0, -2.0], [3.0, 3.0]),  # one axis is that of the batch
    (-2.0, 2.0),
]


@pytest.mark.parametrize(("array", "scale"), SCALES)
def test_scale_of_a_number_is_the_smaller_of_row_and_channel(array, scale):
    found = scale_of(np.array(array))
    wanted = np.array(scale, object)
    assert found[wanted != ...].tolist() == wanted[wanted != ...].tolist()


def test_large_results_are_not_taken_for_fills():
    for results in np.array([[3e4, 5e4], [1e5, 2e4]]), np.array([100.0, 100.0, 100.0]):
        assert zero_fill_values(results).tolist() == results.tolist()


def test_rounding_widens_the_limit_and_cuda_does_by_four():
    expected, rounding = floats([1, 1, 1]), {"out": np.array([[1e-3, 0, 1e-3]])}
    none = {"relative": 0.0, "absolute": 0.0}
    for actual, passed in ([1.0009, 1, 1], True), ([1, 1.0009, 1], False), ([1, 1, 1.002], False):
        (row,) = rows_of("base", {"out": expected}, {"out": floats(actual)}, none, rounding)
        assert row["passed"] is passed
    assert row["of_limit"] == pytest.approx(2, rel=1e-3)
    case = Case("base", {}, {"out": expected}, rounding)
    (row,) = compare(case, {"out": floats(actual)}, none, PROVIDERS["cuda"].limit_factor)
    assert row["of_limit"] == pytest.approx(0.5, rel=1e-3)
    assert PROVIDERS["cpu"].limit_factor == 1


def test_integers_may_differ_where_rounding_decides():
    expected, tied = np.array([1, 2, 3]), {"out": np.array([False, True, True])}
    (row,) = rows_of("base", {"out": expected}, {"out": np.array([1, 7, 3])}, TOLERANCE, tied)
    assert row["passed"]
    assert row["ties"] == 1
    assert "ok (1 decided by rounding)" in format_rows([row])[1]
    (row,) = rows_of("base", {"out": expected}, {"out": np.array([0, 7, 3])}, TOLERANCE, tied)
    assert row["problem"] == "differs in 1 of 3 elements"
