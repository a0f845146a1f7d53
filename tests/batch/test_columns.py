"""Values of Arrow lists with nulls and of other widths."""

import numpy as np
import pyarrow as pa
import pytest

from keras_attn_export._batch.columns import read_column
from keras_attn_export._standalone.verify import Spec


def spec(*sizes, dtype="float32"):
    return Spec("x", dtype, ("batch", *sizes))


@pytest.mark.parametrize("hidden", [[[[5.0]]], [[[5.0, 6.0], [7.0, 8.0]]]])
def test_null_at_any_depth_fails_its_row(hidden):
    rows = [[[1.0, 2.0]], None, [[3.0, 4.0], None], [[5.0, None]], [[6.0, 7.0]], *hidden]
    ragged, problems = read_column(pa.array(rows, pa.list_(pa.list_(pa.float32()))).slice(0, 5), spec("time", 2))
    assert problems == dict.fromkeys([1, 2, 3], "`x` is null, or holds one")
    assert (ragged.row(0).tolist(), ragged.row(4).tolist()) == ([[1, 2]], [[6, 7]])


def test_numbers_behind_a_null_are_ignored():
    """A list that is null may still have numbers, which belong to nobody."""
    values = pa.array([1.0, 2.0, 8.0, 9.0, 3.0], pa.float32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 5], pa.int32()), values, mask=pa.array([False, True, False]))
    ragged, problems = read_column(lists, spec("time"))
    assert (list(problems), ragged.row(0).tolist(), ragged.row(2).tolist()) == ([1], [1, 2], [3])


@pytest.mark.parametrize(
    ("rows", "kind", "dtype", "bad"),
    [
        ([[1], [300], [2]], pa.int64(), "int8", {1: "`x` holds integers that do not fit int8"}),
        ([[1.0], [1e300], [np.inf]], pa.float64(), "float32", {1: "`x` holds numbers that are infinite in float32"}),
        ([[1], [2], [3]], pa.int16(), "int64", {}),
    ],
)
def test_numbers_of_another_width_are_converted_if_they_fit(rows, kind, dtype, bad):
    ragged, problems = read_column(pa.array(rows, pa.list_(kind)), spec("time", dtype=dtype))
    assert (problems, ragged.values.dtype) == (bad, np.dtype(dtype))
    for number, row in enumerate(rows):
        if number not in bad:
            np.testing.assert_array_equal(ragged.row(number), np.array(row, dtype))
