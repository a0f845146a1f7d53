"""Rows of a table through a bundle: each on its own, whatever stands beside it, and its own fault if it cannot run."""

import numpy as np
import pyarrow as pa
import pytest
from batch_tables import floats, run_table
from onnx_bundles import onnx_bundle

# Each number times two, and the sum of those that count.
COUNTED = """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    last = Constant <value = int64[1] {1}> ()
    sizes = Shape (x)
    at_one = Gather <axis = 0> (sizes, one)
    places = Range (zero, at_one, one)
    behind = Unsqueeze (lens, last)
    wide = Cast <to = 7> (behind)
    counts = Less (places, wide)
    share = Cast <to = 1> (counts)
    seen = Mul (x, share)
    total = ReduceSum <keepdims = 0> (seen, last)
    twice = Add (x, x)
"""
SHAPE = ["batch", "time"]


@pytest.fixture
def counted(tmp_path):
    inputs = {"x": ("float32", SHAPE), "lens": ("int32", ["batch"])}
    outputs = {"total": ("float32", ["batch"]), "twice": ("float32", SHAPE)}
    return onnx_bundle(tmp_path / "bundle", COUNTED, inputs, outputs, counts={"lens": "time"})


HALVES = [[np.float16(1), np.float16(2)], [np.float16(3), np.float16(4)]]
TABLES = {
    "lengths are filled in and padding is cut": (
        {"x": floats([[1, 2, 3], [], [4], [5, 6]]), "name": list("abcd")},
        {"name": list("abcd"), "total": [6, 0, 4, 11], "twice": [[2, 4, 6], [], [8], [10, 12]]},
    ),
    "lengths that are given count no padding": (
        {"x": floats([[1, 2, 3], [4], [5, 6]]), "lens": [2, 7, 0]},
        {"total": [3, 4, 0], "twice": [[2, 4, 6], [8], [10, 12]]},
    ),
    "no rows": (
        {"x": floats([]), "name": pa.array([], pa.string())},
        {"name": [], "total": [], "twice": []},
    ),
    **{
        str(kind): ({"x": pa.array(HALVES, kind)}, {"total": [3, 7], "twice": [[2, 4], [6, 8]]})
        for kind in (pa.large_list(pa.float64()), pa.list_(pa.float16()), pa.list_(pa.float32(), 2))
    },
}


@pytest.mark.parametrize(("columns", "wanted"), TABLES.values(), ids=TABLES)
def test_each_row_gives_its_own(counted, tmp_path, columns, wanted):
    _, found, errors = run_table(counted, pa.table(columns), tmp_path)
    assert (found, errors) == (wanted, [])


def test_a_model_without_other_dynamic_axes(tmp_path):
    tensors = {"x": ("float32", ["batch", 2, 3]), "on": ("bool", ["batch"])}
    nodes = "a = Add (x, x)\n flag = Identity (on)"
    bundle = onnx_bundle(tmp_path / "bundle", nodes, tensors, {"a": tensors["x"], "flag": tensors["on"]})
    x = np.arange(30, dtype="float32").reshape(5, 2, 3)
    on = [True, False, True, True, False]
    _, found, errors = run_table(bundle, pa.table({"x": x.tolist(), "on": on}), tmp_path, batch_size=2)
    assert (found, errors) == ({"a": (2 * x).tolist(), "flag": on}, [])


def test_an_output_axis_that_only_the_model_knows(tmp_path):
    """As for the ids of a whole answer: as long as they come out, and not cut to anything."""
    nodes, outputs = "y = Concat <axis = 1> (x, x)", {"y": ("int64", ["batch", "answer"])}
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"x": ("int64", SHAPE)}, outputs)
    rows = [[1, 2], [3], [4, 5, 6], [7, 8]]
    _, found, errors = run_table(bundle, pa.table({"x": rows}), tmp_path)
    assert (found["y"], errors) == ([row + row for row in rows], [])


@pytest.mark.parametrize("workers", [1, 3])
def test_a_row_that_cannot_run_takes_no_other_along(tmp_path, workers):
    nodes = "numbers = Constant <value = float[3] {10, 20, 30}> ()\n y = Gather <axis = 0> (numbers, ids)"
    embedding = onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int32", SHAPE)}, {"y": ("float32", SHAPE)})
    rows = [[0, 1], [2], [1, 2, 0], [7], [0], [1, 1], [2, -9], [0]]
    table = pa.table({"ids": rows, "id": [f"row {number}" for number in range(8)]})
    _, found, errors = run_table(embedding, table, tmp_path, key="id", workers=workers)
    good = [number for number in range(8) if number not in (3, 6)]
    assert found["id"] == [f"row {number}" for number in good]
    assert found["y"] == [[10.0 * (1 + each) for each in rows[number]] for number in good]
    told = [(each["part"], each["row"], each["key"]) for each in errors]
    assert told == [("x.parquet", number, f"row {number}") for number in (3, 6)]
    assert all("out of data bounds" in each["reason"] for each in errors)


# The mean of y is one that padding changes.
TWO = """
    axes = Constant <value = int64[1] {-1}> ()
    sums = ReduceSum <keepdims = 0> (x, axes)
    mean = ReduceMean <axes = [1], keepdims = 1> (y)
    z = Add (sums, mean)
"""


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([[1, 1], [1]], [1, 1], "`x` has lists of different lengths side by side"),
        ([[1, 1, 1]] * 2, [1, 1], "`x` must have shape ('batch', 'time', 2); it has 3 for 2"),
        ([[1, 1]] * 2, [1] * 4, "`y` is 4 long and `x` 2; both are `time`"),
        ([[1, 1]] * 3, [1] * 3, "`time` must be a multiple of 2; it is 3"),
    ],
)
def test_a_row_of_wrong_sizes_says_which(tmp_path, x, y, reason):
    inputs = {"x": ("float32", [*SHAPE, 2]), "y": ("float32", SHAPE)}
    two = onnx_bundle(tmp_path / "bundle", TWO, inputs, {"z": ("float32", SHAPE)}, multiples={"time": 2})
    good = [[1, 2], [3, 4]]
    table = pa.table({"x": [good, x, [*good, *good]], "y": [[1, 3], y, [3, 3, 4, 6]]})
    _, found, errors = run_table(two, table, tmp_path)
    assert found["z"] == [[5, 9], [7, 11, 7, 11]]
    assert [(each["row"], each["reason"]) for each in errors] == [(1, reason)]
