"""Outputs and errors of single rows, independent of the other rows of the table."""

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
def test_each_row_gives_its_own_outputs(counted, tmp_path, columns, wanted):
    _, found, errors = run_table(counted, pa.table(columns), tmp_path)
    assert (found, errors) == (wanted, [])


def test_model_with_a_dynamic_batch_axis_only_runs(tmp_path):
    tensors = {"x": ("float32", ["batch", 2, 3]), "on": ("bool", ["batch"])}
    nodes = "a = Add (x, x)\n flag = Identity (on)"
    bundle = onnx_bundle(tmp_path / "bundle", nodes, tensors, {"a": tensors["x"], "flag": tensors["on"]})
    x = np.arange(30, dtype="float32").reshape(5, 2, 3)
    on = [True, False, True, True, False]
    _, found, errors = run_table(bundle, pa.table({"x": x.tolist(), "on": on}), tmp_path, batch_size=2)
    assert (found, errors) == ({"a": (2 * x).tolist(), "flag": on}, [])


def test_output_axis_that_is_no_input_axis_is_not_cut(tmp_path):
    """As for the ids of a whole answer."""
    nodes, outputs = "y = Concat <axis = 1> (x, x)", {"y": ("int64", ["batch", "answer"])}
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"x": ("int64", SHAPE)}, outputs)
    rows = [[1, 2], [3], [4, 5, 6], [7, 8]]
    _, found, errors = run_table(bundle, pa.table({"x": rows}), tmp_path)
    assert (found["y"], errors) == ([row + row for row in rows], [])


@pytest.mark.parametrize("workers", [1, 3])
def test_row_that_cannot_run_fails_alone(tmp_path, workers):
    nodes = "numbers = Constant <value = float[3] {10, 20, 30}> ()\n y = Gather <axis = 0> (numbers, ids)"
    embedding = onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int32", SHAPE)}, {"y": ("float32", SHAPE)})
    rows = [[0, 1], [2], [1, 2, 0], [7], [0], [1, 1], [2, -9], [0]]
    table = pa.table({"ids": rows, "id": [f"row {number}" for number in range(8)]})
    _, found, errors = run_table(embedding, table, tmp_path, key="id", workers=workers)
    good = [number for number in range(8) if number not in (3, 6)]
    assert found["id"] == [f"row {number}" for number in good]
    assert found["y"] == [[10.0 * (1 + each) for each in rows[number]] for number in good]
    told = [(each["file"], each["row"], each["key"]) for each in errors]
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
        ([[1, 1]] * 2, [1] * 4, "`time` is 4 in `y`, and 2 in another input"),
        ([[1, 1]] * 3, [1] * 3, "`time` must be a multiple of 2; it is 3"),
        (None, [1, 1], "`x` is null, or holds one"),
        ([[1, None], [1, 1]], [1, 1], "`x` is null, or holds one"),
        ([[1e300, 1], [1, 1]], [1, 1], "`x` holds numbers that are infinite in float32"),
    ],
)
def test_error_names_the_wrong_size_or_value_of_a_row(tmp_path, x, y, reason):
    inputs = {"x": ("float32", [*SHAPE, 2]), "y": ("float32", SHAPE)}
    two = onnx_bundle(tmp_path / "bundle", TWO, inputs, {"z": ("float32", SHAPE)}, multiples={"time": 2})
    good = [[1, 2], [3, 4]]
    table = pa.table({"x": [good, x, [*good, *good]], "y": [[1, 3], y, [3, 3, 4, 6]]})
    _, found, errors = run_table(two, table, tmp_path)
    assert found["z"] == [[5, 9], [7, 11, 7, 11]]
    assert [(each["row"], each["reason"]) for each in errors] == [(1, reason)]


def test_numbers_behind_a_null_list_are_ignored(sums, tmp_path):
    values, starts = pa.array([1.0, 2.0, 8.0, 9.0, 3.0], pa.float32()), pa.array([0, 2, 4, 5], pa.int32())
    lists = pa.ListArray.from_arrays(starts, values, mask=pa.array([False, True, False]))
    _, found, (error,) = run_table(sums, pa.table({"x": lists}), tmp_path)
    assert (found, error["row"]) == ({"y": [3, 3]}, 1)


def test_length_that_is_no_multiple_is_padded_to_the_next(tmp_path):
    nodes = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"
    inputs, outputs = {"x": ("float32", SHAPE)}, {"y": ("float32", ["batch"])}
    bundle = onnx_bundle(tmp_path / "bundle", nodes, inputs, outputs, multiples={"time": 4})
    done, found, errors = run_table(bundle, pa.table({"x": floats([[1.0] * n for n in (3, 5, 7, 1)])}), tmp_path)
    assert (errors, done.exact_axes, found["y"]) == ([], (), [3, 5, 7, 1])


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (pa.array([1, 2, 3], pa.timestamp("ns")), "1970-01-01 00:00:00.000000002"),
        (pa.array([1, None, 3]), None),
        (pa.array([[1], [2], [3]]), "[2]"),
        (pa.array(["a", "b", "c"]).dictionary_encode(), "b"),
        (pa.array([b"a", b"a\xff", b"c"]).view(pa.string()), "a\\xff"),  # no UTF-8, as a careless writer may leave it
    ],
    ids=["timestamp", "null", "list", "dictionary", "bytes that are no text"],
)
def test_errors_name_keys_of_any_type(sums, tmp_path, keys, text):
    table = pa.table({"x": floats([[1.0], None, [3.0]]), "key": keys})
    _, found, (error,) = run_table(sums, table, tmp_path, columns=["y"], key="key")
    assert (found, error["key"]) == ({"y": [1, 3]}, text)


def test_columns_of_any_type_are_passed_on(sums, tmp_path):
    columns = {
        "view": pa.array(["a", "b", "c"], pa.string_view()),
        "bytes": pa.array([b"a", None, b"\xff"], pa.binary_view()),
        "struct": pa.array([{"a": 1}, {"a": None}, None]),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    _, found, errors = run_table(sums, pa.table({"x": floats([[1.0], None, [3.0]]), **columns}), tmp_path)
    assert len(errors) == 1
    assert {name: found[name] for name in columns} == {
        name: [column[0].as_py(), column[2].as_py()] for name, column in columns.items()
    }


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_strings_pass_through_the_model(tmp_path, kind):
    nodes = "same = Identity (words)\n first = Identity (name)\n size = Shape <start = 1> (words)"
    inputs = {"words": ("string", SHAPE), "name": ("string", ["batch", 1])}
    bundle = onnx_bundle(tmp_path / "bundle", nodes, inputs, dict(zip(["same", "first"], inputs.values(), strict=True)))
    words = [["a", "grün"], [], ["世界"], None, ["x", None]]
    table = {"words": pa.array(words, pa.list_(kind)), "name": pa.array(list("abcde"), kind), "row": [*range(5)]}
    done, found, errors = run_table(bundle, pa.table(table), tmp_path)
    assert (done.rows, len(errors)) == (3, 2)
    assert found == {"row": [0, 1, 2], "same": words[:3], "first": [["a"], ["b"], ["c"]]}
