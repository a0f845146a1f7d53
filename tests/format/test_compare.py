"""Comparison of outputs with golden cases: problems, scales and rounding limits."""

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


def compare_case(case, expected, actual, tolerance, rounding=MappingProxyType({})):
    return compare(Case(case, {}, expected, rounding), actual, tolerance)


NONFINITE = (np.nan, np.inf, -np.inf)


def add_one_to_first_row(array):
    """Return a copy of an array with 1 added to its first row."""
    copy = array.copy()
    copy[0] += copy.dtype.type(1)
    return copy


def test_row_describes_one_comparison():
    (row,) = compare_case("keys 17", {"out": floats([2, 4, -8])}, {"out": floats([2, 4.5, -8])}, TOLERANCE)
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
    assert {row["name"]: row["problem"] for row in compare_case("base", expected, actual, TOLERANCE)} == {
        "gone": "is missing",
        "shape": "has shape (1,), expected (2,)",
        "dtype": "has dtype float64, expected float32",
        "value": "is outside the tolerance",
        "good": None,
        "extra": "was not expected",
    }


OUTSIDE, MISPLACED = "is outside the tolerance", "has NaN or infinity in other places than expected"
WIDE = {"relative": 1, "absolute": 9}
INTEGERS = np.array([[1, 2], [3, 4]], "int32"), np.array([[2**62, 1], [0, 5]]), np.zeros((2, 2), bool)
COMPARISONS = [  # expected, actual, tolerance, problem
    *(  # one tolerance suffices: the difference is 5e-3 absolute, and 5e-4 relative to the scale 10
        (floats(10, 1, dtype="float64"), floats(10, 1.005, dtype="float64"), dict(relative=r, absolute=a), problem)
        for r, a, problem in ((1e-3, 1e-2, None), (1e-3, 1e-4, None), (1e-5, 1e-2, None), (1e-5, 1e-4, OUTSIDE))
    ),
    (floats(1), floats(1.5), {"relative": 0.5, "absolute": 0}, None),  # exactly the tolerance
    (floats(0, 0), floats(0, 1e-3), TOLERANCE, OUTSIDE),
    *((floats(1, value, 2), floats(1, value, 2), TOLERANCE, None) for value in NONFINITE),
    *((floats(1, value, 2), floats(1, value, 3), TOLERANCE, OUTSIDE) for value in NONFINITE),
    *(
        (floats(1, first), floats(1, second), TOLERANCE, MISPLACED)
        for first, second in itertools.permutations((1.0, *NONFINITE), 2)
    ),
    *((expected, expected.copy(), WIDE, None) for expected in INTEGERS),
    # two integers differ by less than the tolerance for floats
    *((expected, add_one_to_first_row(expected), WIDE, "differs in 2 of 4 elements") for expected in INTEGERS),
    (np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32"), TOLERANCE, None),
    (np.float32(2), np.float32(3), TOLERANCE, OUTSIDE),
]


def test_outputs_pass_within_either_tolerance():
    for expected, actual, tolerance, problem in COMPARISONS:
        (row,) = compare_case("base", {"out": expected}, {"out": actual}, tolerance)
        assert (row["problem"], row["passed"]) == (problem, problem is None), (expected, actual)
        assert problem != OUTSIDE or expected.any() or row["max_rel"] == float("inf")


def test_half_precision_is_compared_in_double():
    expected, actual = floats(60000, dtype="float16"), floats(-60000, dtype="float16")
    (row,) = compare_case("base", {"out": expected}, {"out": actual}, TOLERANCE)
    assert row["max_abs"] == 2 * float(expected[0])  # infinite in float16


FILLS = (-1e9, -3.4e38, -1e4, -np.inf, np.inf)
SCALES = [  # array, scale of each element; `...`: the scale of a fill value has no meaning
    (  # the smaller maximum of row and channel: large numbers outside both have no effect
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
    ([[3.0], [-2.0], [0.001]], [[3.0], [3.0], [3.0]]),  # the scale of a row of one element is that of its channel
    ([3.0, -2.0], [3.0, 3.0]),  # a single axis is the batch
    (-2.0, 2.0),
]


@pytest.mark.parametrize(("array", "scale"), SCALES)
def test_scale_of_an_element_is_the_smaller_of_row_and_channel(array, scale):
    scales = scale_of(np.array(array))
    expected = np.array(scale, object)
    assert scales[expected != ...].tolist() == expected[expected != ...].tolist()


def test_large_results_are_not_fill_values():
    for results in np.array([[3e4, 5e4], [1e5, 2e4]]), np.array([100.0, 100.0, 100.0]):
        assert zero_fill_values(results).tolist() == results.tolist()


def test_rounding_and_cuda_widen_the_limit():
    expected, rounding = floats([1, 1, 1]), {"out": np.array([[1e-3, 0, 1e-3]])}
    no_tolerance = {"relative": 0.0, "absolute": 0.0}
    for actual, passed in ([1.0009, 1, 1], True), ([1, 1.0009, 1], False), ([1, 1, 1.002], False):
        (row,) = compare_case("base", {"out": expected}, {"out": floats(actual)}, no_tolerance, rounding)
        assert row["passed"] is passed
    assert row["of_limit"] == pytest.approx(2, rel=1e-3)
    case = Case("base", {}, {"out": expected}, rounding)
    (row,) = compare(case, {"out": floats(actual)}, no_tolerance, PROVIDERS["cuda"].limit_factor)
    assert row["of_limit"] == pytest.approx(0.5, rel=1e-3)
    assert PROVIDERS["cpu"].limit_factor == 1


def test_integers_may_differ_if_rounding_decides():
    expected, ties = np.array([1, 2, 3]), {"out": np.array([False, True, True])}
    (row,) = compare_case("base", {"out": expected}, {"out": np.array([1, 7, 3])}, TOLERANCE, ties)
    assert row["passed"]
    assert row["ties"] == 1
    assert "ok (1 decided by rounding)" in format_rows([row])[1]
    (row,) = compare_case("base", {"out": expected}, {"out": np.array([0, 7, 3])}, TOLERANCE, ties)
    assert row["problem"] == "differs in 1 of 3 elements"
