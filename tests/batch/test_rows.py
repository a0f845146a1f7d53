"""Outputs and errors of single rows, independent of the other rows of the table."""

import numpy as np
import pyarrow as pa
import pytest
from batch_tables import run_table, to_lists
from handwritten_bundles import write_onnx_bundle

# `twice`: each number times 2; `total`: the sum of number + 1 over the positions within the length.
COUNTED_NODES = """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    last = Constant <value = int64[1] {1}> ()
    sizes = Shape (x)
    at_one = Gather <axis = 0> (sizes, one)
    positions = Range (zero, at_one, one)
    column = Unsqueeze (lens, last)
    lengths = Cast <to = 7> (column)
    counts = Less (positions, lengths)
    share = Cast <to = 1> (counts)
    more = Constant <value = float[1] {1}> ()
    larger = Add (x, more)
    counted = Mul (larger, share)
    total = ReduceSum <keepdims = 0> (counted, last)
    twice = Add (x, x)
"""
SHAPE = ["batch", "time"]
HALVES = [[np.float16(1), np.float16(2)], [np.float16(3), np.float16(4)]]
TABLES = {
    "lengths are computed and padding is cut": (
        {"x": to_lists([[1, 2, 3], [], [4], [5, 6]]), "name": list("abcd")},
        {"name": list("abcd"), "total": [9, 0, 5, 13], "twice": [[2, 4, 6], [], [8], [10, 12]]},
    ),
    "given lengths include no padding": (
        {"x": to_lists([[1, 2, 3], [4], [5, 6]]), "lens": [2, 7, 0]},
        {"total": [5, 5, 0], "twice": [[2, 4, 6], [8], [10, 12]]},
    ),
    "no rows": ({"x": to_lists([]), "name": pa.array([], pa.string())}, {"name": [], "total": [], "twice": []}),
    **{
        str(kind): ({"x": pa.array(HALVES, kind)}, {"total": [5, 9], "twice": [[2, 4], [6, 8]]})
        for kind in (pa.large_list(pa.float64()), pa.list_(pa.float16()), pa.list_(pa.float32(), 2))
    },
}


@pytest.mark.parametrize(("columns", "expected"), TABLES.values(), ids=TABLES)
def test_outputs_of_a_row_exclude_padding(tmp_path, columns, expected):
    inputs = {"x": ("float32", SHAPE), "lens": ("int32", ["batch"])}
    outputs = {"total": ("float32", ["batch"]), "twice": ("float32", SHAPE)}
    bundle = write_onnx_bundle(tmp_path / "bundle", COUNTED_NODES, inputs, outputs, counts={"lens": "time"})
    result, actual, errors = run_table(bundle, pa.table(columns), tmp_path)
    assert (actual, errors, result.exact_axes) == (expected, [], ())


def test_model_with_only_a_dynamic_batch_axis_runs(tmp_path):
    tensors = {"x": ("float32", ["batch", 2, 3]), "on": ("bool", ["batch"])}
    nodes = "a = Add (x, x)\n flag = Identity (on)"
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, tensors, {"a": tensors["x"], "flag": tensors["on"]})
    x, on = np.arange(30, dtype="float32").reshape(5, 2, 3), [True, False, True, True, False]
    _, actual, errors = run_table(bundle, pa.table({"x": x.tolist(), "on": on}), tmp_path, batch_size=2)
    assert (actual, errors) == ({"a": (2 * x).tolist(), "flag": on}, [])


def test_output_axis_of_no_input_is_not_cut(tmp_path):
    nodes, outputs = "y = Concat <axis = 1> (x, x)", {"y": ("int64", ["batch", "answer"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, {"x": ("int64", SHAPE)}, outputs)
    rows = [[1, 2], [3], [4, 5, 6], [7, 8]]
    _, actual, errors = run_table(bundle, pa.table({"x": rows}), tmp_path)
    assert (actual["y"], errors) == ([row + row for row in rows], [])


@pytest.mark.parametrize("workers", [1, 3])
def test_row_that_fails_in_the_model_is_the_only_error(tmp_path, workers):
    nodes = "numbers = Constant <value = float[3] {10, 20, 30}> ()\n y = Gather <axis = 0> (numbers, ids)"
    embedding = write_onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int32", SHAPE)}, {"y": ("float32", SHAPE)})
    rows = [[0, 1], [2], [1, 2, 0], [7], [0], [1, 1], [2, -9], [0]]
    table = pa.table({"ids": rows, "id": [f"row {number}" for number in range(8)]})
    _, actual, errors = run_table(embedding, table, tmp_path, key="id", workers=workers)
    indices = [number for number in range(8) if number not in (3, 6)]
    assert actual["id"] == [f"row {number}" for number in indices]
    assert actual["y"] == [[10.0 * (1 + value) for value in rows[number]] for number in indices]
    listed = [(error["file"], error["row"], error["key"]) for error in errors]
    assert listed == [("x.parquet", number, f"row {number}") for number in (3, 6)]
    assert all("out of data bounds" in error["reason"] for error in errors)


# Padding changes the mean of y.
MEAN_NODES = """
    axes = Constant <value = int64[1] {-1}> ()
    sums = ReduceSum <keepdims = 0> (x, axes)
    mean = ReduceMean <axes = [1], keepdims = 1> (y)
    z = Add (sums, mean)
"""


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([[1, 1], [1]], [1, 1], "`x` must have shape ('batch', 'time', 2); a list has 1 values, not 2"),
        ([[1, 1, 1]] * 2, [1, 1], "`x` must have shape ('batch', 'time', 2); a list has 3 values, not 2"),
        ([[1, 1]] * 2, [1] * 4, "`x` must have shape ('batch', 'time', 2); a list has 2 values, not 4"),
        ([[1, 1]] * 3, [1] * 3, "`time` must be a multiple of 2; it is 3"),
        (None, [1, 1], "`x` is null or contains a null"),
        ([[1, None], [1, 1]], [1, 1], "`x` is null or contains a null"),
        ([[1e300, 1], [1, 1]], [1, 1], "`x` holds numbers that are infinite in float32"),
    ],
)
def test_error_names_the_wrong_size_or_value_of_a_row(tmp_path, x, y, reason):
    inputs = {"x": ("float32", [*SHAPE, 2]), "y": ("float32", SHAPE)}
    outputs = {"z": ("float32", SHAPE)}
    bundle = write_onnx_bundle(tmp_path / "bundle", MEAN_NODES, inputs, outputs, multiples={"time": 2})
    valid_row = [[1, 2], [3, 4]]
    table = pa.table({"x": [valid_row, x, [*valid_row, *valid_row]], "y": [[1, 3], y, [3, 3, 4, 6]]})
    _, actual, errors = run_table(bundle, table, tmp_path)
    assert actual["z"] == [[5, 9], [7, 11, 7, 11]]
    assert [(error["row"], error["reason"]) for error in errors] == [(1, reason)]


def test_nan_passes_through_the_model(sums, tmp_path):
    _, actual, errors = run_table(sums, pa.table({"x": to_lists([[1.0], [float("nan"), 1.0], [2.0]])}), tmp_path)
    assert (np.isnan(actual["y"]).tolist(), errors) == ([False, True, False], [])


def test_length_that_is_no_multiple_is_padded_to_the_next(tmp_path):
    nodes = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"
    inputs, outputs = {"x": ("float32", SHAPE)}, {"y": ("float32", ["batch"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, inputs, outputs, multiples={"time": 4})
    result, actual, errors = run_table(bundle, pa.table({"x": to_lists([[1.0] * n for n in (3, 5, 7, 1)])}), tmp_path)
    assert (errors, result.exact_axes, actual["y"]) == ([], (), [3, 5, 7, 1])


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (pa.array([1, 2, 3], pa.timestamp("ns")), "1970-01-01 00:00:00.000000002"),
        (pa.array([1, None, 3]), None),
        (pa.array([[1], [2], [3]]), "[2]"),
        (pa.array(["a", "b", "c"]).dictionary_encode(), "b"),
        (pa.array([b"a", b"a\xff", b"c"]).view(pa.string()), "a\\xff"),  # not UTF-8
    ],
    ids=["timestamp", "null", "list", "dictionary", "bytes"],
)
def test_error_has_a_key_of_any_type(sums, tmp_path, keys, text):
    table = pa.table({"x": to_lists([[1.0], None, [3.0]]), "key": keys})
    _, actual, (error,) = run_table(sums, table, tmp_path, columns=["y"], key="key")
    assert (actual, error["key"]) == ({"y": [1, 3]}, text)


def test_columns_of_any_type_are_copied_in_order(sums, tmp_path):
    columns = {
        "text": pa.array(["a", "b", "grün"]),
        "view": pa.array(["a", "b", "c"], pa.string_view()),
        "bytes": pa.array([b"a", None, b"\xff"], pa.binary_view()),
        "struct": pa.array([{"a": 1}, {"a": None}, None]),
        "time": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    _, actual, errors = run_table(sums, pa.table({"x": to_lists([[1.0], None, [3.0]]), **columns}), tmp_path)
    assert (list(actual), len(errors)) == ([*columns, "y"], 1)
    for name, column in columns.items():
        assert actual[name] == [column[0].as_py(), column[2].as_py()]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_strings_pass_through_the_model(tmp_path, kind):
    nodes = "same = Identity (words)\n first = Identity (name)\n label = Identity (tag)"
    inputs = {"words": ("string", SHAPE), "name": ("string", ["batch", 1]), "tag": ("string", ["batch"])}
    outputs = dict(zip(["same", "first", "label"], inputs.values(), strict=True))
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, inputs, outputs)
    words = [["a", "grün"], [], ["世界"], None, ["x", None]]
    table = {"words": pa.array(words, pa.list_(kind)), "name": pa.array(list("abcde"), kind), "row": [*range(5)]}
    table["tag"] = pa.array(list("vwxyz"), kind)
    result, actual, errors = run_table(bundle, pa.table(table), tmp_path)
    assert (result.rows, len(errors)) == (3, 2)
    assert actual == {"row": [0, 1, 2], "same": words[:3], "first": [["a"], ["b"], ["c"]], "label": ["v", "w", "x"]}


def test_computed_length_that_does_not_fit_its_dtype_is_an_error(tmp_path):
    inputs = {"x": ("float32", SHAPE), "lens": ("int8", ["batch"])}
    outputs = {"total": ("float32", ["batch"]), "twice": ("float32", SHAPE)}
    bundle = write_onnx_bundle(tmp_path / "bundle", COUNTED_NODES, inputs, outputs, counts={"lens": "time"})
    _, actual, errors = run_table(bundle, pa.table({"x": to_lists([[0.0] * 200, [1.0]])}), tmp_path / "run")
    assert actual["total"] == [2.0]
    assert [(error["row"], "length of `time`" in error["reason"]) for error in errors] == [(0, True)]
