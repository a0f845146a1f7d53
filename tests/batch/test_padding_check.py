"""Padding trials on rows of the table: axes whose padding changes outputs, and rows that affect each other."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import run_table, to_lists
from handwritten_bundles import write_onnx_bundle

from keras_attn_export import predict

INPUT = {"x": ("float32", ["batch", "time"])}
OUTPUT = ("float32", ["batch"])
ROWS = [[1.0, -2.0, 3.0], [5.0], [4.0, 4.0], [0.5, 0.25, 2.0, 1.0], [7.0]]

# A maximum ignores padding unless all numbers of a row are negative, as in no row of the trial.
RARELY_NEGATIVE = [[float(1 + n % 5)] * (1 + n % 7) for n in range(400)] + [[-3.0, -4.0], [-5.0], [-1.0, -2.0, -3.0]]

MEAN = "y = ReduceMean <axes = [1], keepdims = 0> (x)"
SUM = "last = Constant <value = int64[1] {1}> ()\n sums = ReduceSum <keepdims = 0> (x, last)"
MIXED_SCALES = """
    mean = ReduceMean <axes = [1], keepdims = 1> (x)
    none = Sub (mean, mean)
    much = Constant <value = float[1] {250000}> ()
    large = Add (none, much)
    y = Concat <axis = 1> (large, mean)
"""
# The sum of a row; the last step counts twice if the row has more than 64 steps.
RARE_LAST_STEP = f"""{SUM}
    one = Constant <value = int64 {{1}}> ()
    sizes = Shape (x)
    long = Gather <axis = 0> (sizes, one)
    many = Constant <value = int64 {{64}}> ()
    beyond = Greater (long, many)
    at_end = Constant <value = int64 {{-1}}> ()
    final = Gather <axis = 1> (x, at_end)
    more = Add (sums, final)
    y = Where (beyond, more, sums)
"""
MODELS = {  # nodes, output, axes without padding, function of a row, rows
    "sum": (f"{SUM}\n y = Identity (sums)", OUTPUT, (), np.sum, ROWS),
    "mean": (MEAN, OUTPUT, ("time",), np.mean, ROWS),
    "maximum": ("y = ReduceMax <axes = [1], keepdims = 0> (x)", OUTPUT, ("time",), np.max, RARELY_NEGATIVE),
    "small beside large": (
        MIXED_SCALES,
        ("float32", ["batch", 2]),
        ("time",),
        lambda x: [250_000, x.mean()],
        [[n / 1000] * (1 + n % 9) for n in range(1, 60)],
    ),
    "rare long rows": (
        RARE_LAST_STEP,
        OUTPUT,
        ("time",),
        lambda x: x.sum() + (len(x) > 64),
        [[1.0] * (n % 20 + 1) for n in range(1000)] + [[1.0] * 70, [1.0] * 90],
    ),
}


@pytest.mark.parametrize(("nodes", "output", "exact", "compute_row", "rows"), MODELS.values(), ids=MODELS)
def test_axes_whose_padding_changes_outputs_are_not_padded(tmp_path, nodes, output, exact, compute_row, rows):
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, INPUT, {"y": output})
    result, actual, errors = run_table(bundle, pa.table({"x": to_lists(rows)}), tmp_path)
    assert (result.exact_axes, errors) == (exact, [])
    for row, y in zip(rows, actual["y"], strict=True):
        np.testing.assert_allclose(y, compute_row(np.array(row, "float32")), rtol=1e-6)


def test_trials_pad_one_axis_at_a_time(tmp_path):
    """A mean over the queries, a sum over the keys: rows of different numbers of keys share a batch."""
    nodes = """
        keys = Constant <value = int64[1] {2}> ()
        sums = ReduceSum <keepdims = 0> (pairs, keys)
        y = ReduceMean <axes = [1], keepdims = 0> (sums)
    """
    inputs = {"pairs": ("float32", ["batch", "queries", "keys"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, inputs, {"y": OUTPUT})
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((1 + n % 3, 1 + n % 5)).astype("float32") for n in range(40)]
    pairs = pa.array([row.tolist() for row in rows], pa.list_(pa.list_(pa.float32())))
    result, actual, errors = run_table(bundle, pa.table({"pairs": pairs}), tmp_path)
    assert (result.exact_axes, errors) == (("queries",), [])
    np.testing.assert_allclose(actual["y"], [row.sum(1).mean() for row in rows], rtol=1e-5, atol=1e-6)


def test_trial_continues_until_a_file_has_valid_rows(sums, tmp_path):
    (tmp_path / "in").mkdir()
    for name, rows in {"a": [None] * 300, "b": [None] * 300, "c": [[1.0], [2.0, 3.0]], "d": [None]}.items():
        pq.write_table(pa.table({"x": to_lists(rows)}), tmp_path / "in" / f"{name}.parquet")
    result = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (result.rows, result.errors, result.one_by_one, result.exact_axes) == (2, 601, False, ())


def test_resumed_run_pads_the_axes_of_the_first_run(tmp_path):
    bundle = write_onnx_bundle(tmp_path / "b", MEAN, INPUT, {"y": OUTPUT})
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": to_lists(ROWS)}), tmp_path / "in" / f"{name}.parquet")
    first = predict(bundle, tmp_path / "in", tmp_path / "out", progress=False)
    (tmp_path / "out" / "b.parquet").unlink()
    second = predict(bundle, tmp_path / "in", tmp_path / "out", progress=False)
    assert (second.exact_axes, second.resumed, second.rows) == (first.exact_axes, 1, len(ROWS))
    assert pq.read_table(tmp_path / "out" / "b.parquet") == pq.read_table(tmp_path / "out" / "a.parquet")


MODELS_ACROSS_ROWS = {  # nodes, input, rows, outputs of rows that run alone
    "mean": (
        "middle = ReduceMean <axes = [0], keepdims = 1> (x)\n y = Sub (x, middle)",
        ("float32", ["batch", 2]),
        [[1.0, 2.0], [3.0, 5.0], [4.0, 0.0]],
        [[0.0, 0.0]] * 3,
    ),
    "sum of previous rows": (
        "zero = Constant <value = int64 {0}> ()\n y = CumSum (x, zero)",
        ("int64", ["batch", "time"]),
        [[1, 2], [3, 4], [5]],
        [[1, 2], [3, 4], [5]],
    ),
    "distance to the maximum": (
        "most = ReduceMax <axes = [0], keepdims = 1> (x)\n y = Sub (most, x)",
        ("int32", ["batch"]),
        [4, 8, 1, 6, 2],
        [0] * 5,
    ),
}


@pytest.mark.parametrize(("nodes", "x", "rows", "row_outputs"), MODELS_ACROSS_ROWS.values(), ids=MODELS_ACROSS_ROWS)
def test_rows_that_affect_each_other_run_one_by_one(tmp_path, nodes, x, rows, row_outputs):
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, {"x": x}, {"y": x})
    result, actual, errors = run_table(bundle, pa.table({"x": rows}), tmp_path)
    assert (result.one_by_one, actual["y"], errors) == (True, row_outputs, [])


def test_trial_waits_for_a_file_with_rows(tmp_path):
    bundle = write_onnx_bundle(tmp_path / "bundle", MEAN, INPUT, {"y": OUTPUT})
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": to_lists([])}), tmp_path / "in" / "a.parquet")
    predict(bundle, tmp_path / "in", tmp_path / "out", progress=False)
    pq.write_table(pa.table({"x": to_lists([[1.0] * 8, [2.0] * 9, [3.0] * 2, [4.0]])}), tmp_path / "in" / "b.parquet")
    assert predict(bundle, tmp_path / "in", tmp_path / "out", progress=False).exact_axes == ("time",)
    assert pq.read_table(tmp_path / "out" / "b.parquet")["y"].to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize("first", [float("nan"), 0.0])
def test_uninformative_outputs_prevent_padding(tmp_path, first):
    nodes = "y = ReduceMax <axes = [1], keepdims = 0> (x)"
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, INPUT, {"y": OUTPUT})
    rows = [[first]] * 4200 + [[-1.0, -2.0, -3.0], [-1.0]]  # the trial draws from the first 4,096
    _, outputs, _ = run_table(bundle, pa.table({"x": to_lists(rows)}), tmp_path / "run")
    assert outputs["y"][-2:] == [-1, -1]
