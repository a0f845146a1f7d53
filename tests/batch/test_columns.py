"""Lists in Arrow become arrays, and arrays lists, whatever slice, list type or size."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn_export._batch.columns import column_problem, read_column, to_lists
from keras_attn_export._standalone.verify import Spec

LISTS = (pa.list_, pa.large_list)


def spec(*sizes, dtype="float32"):
    return Spec("x", dtype, ("batch", *sizes))


@st.composite
def tables(draw):
    """Rows of arrays of one to three axes, each axis fixed or not, an axis of nothing among them."""
    axes = draw(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=0, max_size=3))
    rows, numbers = [], iter(range(10**6))
    for _ in range(draw(st.integers(0, 6))):
        sizes = [draw(st.integers(0, 4)) if size is None else size for size in axes]
        for axis, size in enumerate(sizes):
            if size == 0:  # what is within nothing has no size that a list could hold
                sizes[axis + 1 :] = [each or 0 for each in axes[axis + 1 :]]
        rows.append(np.array([next(numbers) for _ in range(int(np.prod(sizes)))], "float32").reshape(sizes))
    return axes, rows


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(0, 3), st.integers(0, 3), st.sampled_from(LISTS), st.booleans())
def test_rows_of_any_shape_are_read_and_written_unchanged(table, before, behind, of, fixed):
    axes, rows = table
    kind = pa.float32()
    for size in reversed(axes):
        kind = pa.list_(kind, size) if fixed and size else of(kind)
    around = [np.zeros([size or 1 for size in axes], "float32").tolist()]
    column = pa.array([*around * before, *(row.tolist() for row in rows), *around * behind], kind)
    column = column.slice(before, len(rows))
    shape = spec(*("axis" if size is None else size for size in axes))
    assert column_problem(kind, shape) is None
    ragged, problems = read_column(column, shape)
    assert problems == {}
    for number, row in enumerate(rows):
        found = ragged.row(number)
        assert (found.dtype, found.shape) == (row.dtype, row.shape)
        np.testing.assert_array_equal(found, row)
    values = np.concatenate([np.zeros(0, "float32"), *(row.ravel() for row in rows)])
    back = to_lists(values, ragged.sizes)
    back.validate(full=True)
    assert back.to_pylist() == column.to_pylist()


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
