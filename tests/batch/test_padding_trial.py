"""Trials with rows of the table: axes whose padding changes outputs, and rows that affect each other."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import floats, run_table
from onnx_bundles import onnx_bundle

from keras_attn_export import ExportError, predict

ONE = {"x": ("float32", ["batch", "time"])}
A_NUMBER = ("float32", ["batch"])
ROWS = [[1.0, -2.0, 3.0], [5.0], [4.0, 4.0], [0.5, 0.25, 2.0, 1.0], [7.0]]

MEAN = "y = ReduceMean <axes = [1], keepdims = 0> (x)"
SUM = "last = Constant <value = int64[1] {1}> ()\n sums = ReduceSum <keepdims = 0> (x, last)"
# The number of steps
LONG = """
    one = Constant <value = int64 {1}> ()
    sizes = Shape (x)
    long = Gather <axis = 0> (sizes, one)
"""
SMALL_BESIDE_LARGE = """
    mean = ReduceMean <axes = [1], keepdims = 1> (x)
    none = Sub (mean, mean)
    much = Constant <value = float[1] {250000}> ()
    large = Add (none, much)
    y = Concat <axis = 1> (large, mean)
"""
# What a model gives for no step at all is not what it gives for one of padding, and is proven nowhere.
EMPTY = f"""{LONG} {SUM}
    zero = Constant <value = int64 {{0}}> ()
    none = Equal (long, zero)
    more = Cast <to = 1> (none)
    y = Add (sums, more)
"""
# A largest number minds zeros only where all are negative, and those of the first rows are positive.
NEGATIVE_LAST = [[float(1 + n % 5)] * (1 + n % 7) for n in range(400)] + [[-3.0, -4.0], [-5.0], [-1.0, -2.0, -3.0]]

PADDED = {  # nodes, output, axes that are not padded, what a row gives, rows, relative tolerance
    "sum": (f"{SUM}\n y = Identity (sums)", A_NUMBER, (), np.sum, ROWS, 1e-6),
    "nothing": (EMPTY, A_NUMBER, (), np.sum, [[], [1.0, 2.0], [], [3.0]] * 40, 0),
    "mean": (MEAN, A_NUMBER, ("time",), np.mean, ROWS, 1e-6),
    "largest": ("y = ReduceMax <axes = [1], keepdims = 0> (x)", A_NUMBER, ("time",), np.max, NEGATIVE_LAST, 0),
    "a small output beside a large one": (
        SMALL_BESIDE_LARGE,
        ("float32", ["batch", 2]),
        ("time",),
        lambda x: [250_000, x.mean()],
        [[float(n)] * (1 + n % 9) for n in range(1, 60)],
        1e-6,
    ),
}


@pytest.mark.parametrize(("nodes", "output", "exact", "of_row", "rows", "rtol"), PADDED.values(), ids=PADDED)
def test_axes_whose_padding_changes_outputs_are_not_padded(tmp_path, nodes, output, exact, of_row, rows, rtol):
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, {"y": output})
    done, found, errors = run_table(bundle, pa.table({"x": floats(rows)}), tmp_path)
    assert (done.exact_axes, errors) == (exact, [])
    for row, y in zip(rows, found["y"], strict=True):
        np.testing.assert_allclose(y, of_row(np.array(row, "float32")), rtol=rtol)


def test_axes_are_judged_one_by_one(tmp_path):
    """A mean over the queries, a sum over the keys: rows of different numbers of keys run together."""
    nodes = """
        keys = Constant <value = int64[1] {2}> ()
        sums = ReduceSum <keepdims = 0> (pairs, keys)
        y = ReduceMean <axes = [1], keepdims = 0> (sums)
    """
    inputs = {"pairs": ("float32", ["batch", "queries", "keys"])}
    bundle = onnx_bundle(tmp_path / "bundle", nodes, inputs, {"y": A_NUMBER})
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((1 + n % 3, 1 + n % 5)).astype("float32") for n in range(40)]
    pairs = pa.array([row.tolist() for row in rows], pa.list_(pa.list_(pa.float32())))
    done, found, errors = run_table(bundle, pa.table({"pairs": pairs}), tmp_path)
    assert (done.exact_axes, errors) == (("queries",), [])
    np.testing.assert_allclose(found["y"], [row.sum(1).mean() for row in rows], rtol=1e-5, atol=1e-6)


def test_null_rows_are_no_sample_of_padding(sums, tmp_path):
    (tmp_path / "in").mkdir()
    for name, rows in {"a": [None] * 300, "b": [None] * 300, "c": [[1.0], [2.0, 3.0]], "d": [None]}.items():
        pq.write_table(pa.table({"x": floats(rows)}), tmp_path / "in" / f"{name}.parquet")
    done = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (done.rows, done.errors, done.one_by_one, done.exact_axes) == (2, 601, False, ())


def test_resumed_run_pads_the_axes_of_the_first_run(tmp_path):
    bundle, source, target = onnx_bundle(tmp_path / "b", MEAN, ONE, {"y": A_NUMBER}), tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": floats(ROWS)}), source / f"{name}.parquet")
    first = predict(bundle, source, target, progress=False)
    (target / "b.parquet").unlink()
    second = predict(bundle, source, target, progress=False)
    assert (second.exact_axes, second.resumed, second.rows) == (first.exact_axes, 1, len(ROWS))
    assert pq.read_table(target / "b.parquet") == pq.read_table(target / "a.parquet")


PAIRS, NUMBERS = [[1.0, 2.0], [3.0, 5.0], [4.0, 0.0]], [4, 8, 1, 6, 2]
SUM_SO_FAR = "zero = Constant <value = int64 {0}> ()\n y = CumSum (x, zero)"  # of those before in the batch
TOP = "most = ReduceMax <axes = [0], keepdims = 1> (x)\n y = "
SEEN = {  # nodes, input, rows, what each gives alone
    "mean": (
        "middle = ReduceMean <axes = [0], keepdims = 1> (x)\n y = Sub (x, middle)",
        ("float32", ["batch", 2]),
        PAIRS,
        [[0.0, 0.0]] * 3,
    ),
    "sum of whole numbers": (SUM_SO_FAR, ("int64", ["batch", "time"]), [[1, 2], [3, 4], [5]], [[1, 2], [3, 4], [5]]),
    "less than the most": (f"{TOP} Sub (most, x)", ("int32", ["batch"]), NUMBERS, [0] * 5),
}


@pytest.mark.parametrize(("nodes", "x", "rows", "alone"), SEEN.values(), ids=SEEN)
def test_rows_that_affect_each_other_run_one_by_one(tmp_path, nodes, x, rows, alone):
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"x": x}, {"y": x})
    column = np.array(rows, x[0]) if len(x[1]) == 1 else rows
    done, found, errors = run_table(bundle, pa.table({"x": column}), tmp_path)
    assert (done.one_by_one, found["y"], errors) == (True, alone, [])


