"""Rows of a table through a bundle: each on its own, whatever stands beside it, and its own fault if it cannot run."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx_bundles import onnx_bundle

from keras_attn_export import predict

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
SEQUENCE = {"x": ("float32", ["batch", "time"]), "lens": ("int32", ["batch"])}


@pytest.fixture
def counted(tmp_path):
    return onnx_bundle(
        tmp_path / "bundle",
        COUNTED,
        SEQUENCE,
        {"total": ("float32", ["batch"]), "twice": ("float32", ["batch", "time"])},
        counts={"lens": "time"},
    )


def run(bundle, table, folder, **options):
    """Run a table, and return the outputs as Python lists by column, and the errors as a list."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "table.parquet")
    done = predict(bundle, folder / "table.parquet", folder / "out", progress=False, **options)
    errors = [] if done.errors_file is None else pq.read_table(done.errors_file).to_pylist()
    assert done.errors == len(errors)
    return pq.read_table(folder / "out" / "table.parquet").to_pydict(), errors


def floats(rows):
    return pa.array(rows, pa.list_(pa.float32()))


def test_lengths_are_filled_in_and_padding_is_cut(counted, tmp_path):
    rows = [[1, 2, 3], [], [4], [5, 6]]
    found, errors = run(counted, pa.table({"x": floats(rows), "name": list("abcd")}), tmp_path / "run")
    assert errors == []
    assert found == {"name": list("abcd"), "total": [6, 0, 4, 11], "twice": [[2, 4, 6], [], [8], [10, 12]]}


def test_lengths_that_are_given_count_no_padding(counted, tmp_path):
    table = pa.table({"x": floats([[1, 2, 3], [4], [5, 6]]), "lens": [2, 7, 0]})
    found, _ = run(counted, table, tmp_path / "run", outputs=["total"])
    assert found == {"total": [3, 4, 0]}


@pytest.mark.parametrize("kind", [pa.large_list(pa.float64()), pa.list_(pa.float16()), pa.list_(pa.float32(), 2)])
def test_other_lists_of_other_floats_are_taken(counted, tmp_path, kind):
    rows = [[np.float16(1), np.float16(2)], [np.float16(3), np.float16(4)]]
    found, errors = run(counted, pa.table({"x": pa.array(rows, kind)}), tmp_path / "run")
    assert (found["total"], found["twice"], errors) == ([3, 7], [[2, 4], [6, 8]], [])


def test_a_table_without_rows_gives_one(counted, tmp_path):
    found, errors = run(counted, pa.table({"x": floats([]), "name": pa.array([], pa.string())}), tmp_path / "run")
    assert (found, errors) == ({"name": [], "total": [], "twice": []}, [])


def test_a_model_without_other_dynamic_axes(tmp_path):
    bundle = onnx_bundle(
        tmp_path / "bundle",
        "a = Add (x, x)\n flag = Identity (on)",
        {"x": ("float32", ["batch", 2, 3]), "on": ("bool", ["batch"])},
        {"a": ("float32", ["batch", 2, 3]), "flag": ("bool", ["batch"])},
    )
    x = np.arange(30, dtype="float32").reshape(5, 2, 3)
    on = [True, False, True, True, False]
    found, errors = run(bundle, pa.table({"x": x.tolist(), "on": on}), tmp_path / "run", batch_size=2)
    assert (found["a"], found["flag"], errors) == ((2 * x).tolist(), on, [])


def test_an_output_axis_that_only_the_model_knows(tmp_path):
    """As for the ids of a whole answer: as long as they come out, and not cut to anything."""
    bundle = onnx_bundle(
        tmp_path / "bundle",
        "last = Constant <value = int64 {1}> ()\n y = Concat <axis = 1> (x, x)",
        {"x": ("int64", ["batch", "time"])},
        {"y": ("int64", ["batch", "answer"])},
    )
    rows = [[1, 2], [3], [4, 5, 6], [7, 8]]
    found, errors = run(bundle, pa.table({"x": rows}), tmp_path / "run")
    assert (found["y"], errors) == ([row + row for row in rows], [])


EMBEDDING = """
    numbers = Constant <value = float[3] {10, 20, 30}> ()
    y = Gather <axis = 0> (numbers, ids)
"""


@pytest.fixture
def embedding(tmp_path):
    shape = ["batch", "time"]
    return onnx_bundle(tmp_path / "bundle", EMBEDDING, {"ids": ("int32", shape)}, {"y": ("float32", shape)})


@pytest.mark.parametrize("workers", [1, 3])
def test_a_row_that_cannot_run_takes_no_other_along(embedding, tmp_path, workers):
    rows = [[0, 1], [2], [1, 2, 0], [7], [0], [1, 1], [2, -9], [0]]
    table = pa.table({"ids": rows, "id": [f"row {number}" for number in range(8)]})
    found, errors = run(embedding, table, tmp_path / "run", key="id", workers=workers)
    good = [number for number in range(8) if number not in (3, 6)]
    assert found["id"] == [f"row {number}" for number in good]
    assert found["y"] == [[10.0 * (1 + each) for each in rows[number]] for number in good]
    assert [(each["part"], each["row"], each["key"]) for each in errors] == [
        ("table.parquet", 3, "row 3"),
        ("table.parquet", 6, "row 6"),
    ]
    assert all("out of data bounds" in each["reason"] for each in errors)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (None, "`ids` is null, or holds one"),
        ([0, None], "`ids` is null, or holds one"),
        ([2**40], "`ids` holds integers that do not fit int32"),
    ],
)
def test_a_row_that_is_no_input_says_why(embedding, tmp_path, ids, reason):
    table = pa.table({"ids": pa.array([[0, 1], ids, [2]], pa.list_(pa.int64())), "name": ["a", "b", "c"]})
    found, errors = run(embedding, table, tmp_path / "run")
    assert (found["name"], found["y"]) == (["a", "c"], [[10, 20], [30]])
    assert errors == [{"part": "table.parquet", "row": 1, "key": None, "reason": reason}]


# The mean of y is one that padding changes.
TWO = """
    axes = Constant <value = int64[1] {-1}> ()
    sums = ReduceSum <keepdims = 0> (x, axes)
    mean = ReduceMean <axes = [1], keepdims = 1> (y)
    z = Add (sums, mean)
"""


@pytest.fixture
def two(tmp_path):
    shape = ["batch", "time"]
    inputs = {"x": ("float32", [*shape, 2]), "y": ("float32", shape)}
    return onnx_bundle(tmp_path / "bundle", TWO, inputs, {"z": ("float32", shape)}, multiples={"time": 2})


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([[1, 1], [1]], [1, 1], "`x` has lists of different lengths side by side"),
        ([[1, 1, 1]] * 2, [1, 1], "`x` must have shape ('batch', 'time', 2); it has 3 for 2"),
        ([[1, 1]] * 2, [1] * 4, "`y` is 4 long and `x` 2; both are `time`"),
        ([[1, 1]] * 3, [1] * 3, "`time` must be a multiple of 2; it is 3"),
    ],
)
def test_a_row_of_wrong_sizes_says_which(two, tmp_path, x, y, reason):
    good = [[1, 2], [3, 4]]
    table = pa.table({"x": [good, x, [*good, *good]], "y": [[1, 3], y, [3, 3, 4, 6]]})
    found, errors = run(two, table, tmp_path / "run")
    assert found["z"] == [[5, 9], [7, 11, 7, 11]]
    assert [(each["row"], each["reason"]) for each in errors] == [(1, reason)]
