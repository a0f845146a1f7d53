"""Only axes are padded along which padding changes nothing, and rows run together only if that does: rows tell."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx_bundles import onnx_bundle

from keras_attn_export import predict

ONE = {"x": ("float32", ["batch", "time"])}
LIKE_X = {"y": ("float32", ["batch", "time"])}
A_NUMBER = {"y": ("float32", ["batch"])}

TWICE = "y = Add (x, x)"
SUM = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"
MEAN = "y = ReduceMean <axes = [1], keepdims = 0> (x)"
# The last number, as an encoder's last state
LAST = "last = Constant <value = int64 {-1}> ()\n y = Gather <axis = 1> (x, last)"
FORWARDS = "one = Constant <value = int64 {1}> ()\n y = CumSum (x, one)"
BACKWARDS = "one = Constant <value = int64 {1}> ()\n y = CumSum <reverse = 1> (x, one)"
SHARES = "y = Softmax <axis = 1> (x)"


def exact_axes(bundle, rows, folder, **columns):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float32())), **columns}), folder / "x.parquet")
    done = predict(bundle, folder / "x.parquet", folder / "out", progress=False)
    assert (done.rows, done.errors) == (len(rows), 0)
    return done.exact_axes, pq.read_table(folder / "out").column("y").to_pylist()


ROWS = [[1.0, -2.0, 3.0], [5.0], [4.0, 4.0], [0.5, 0.25, 2.0, 1.0], [7.0]]


@pytest.mark.parametrize(
    ("nodes", "outputs", "exact", "of_row"),
    [
        (TWICE, LIKE_X, (), lambda x: 2 * x),
        (SUM, A_NUMBER, (), np.sum),
        (FORWARDS, LIKE_X, (), np.cumsum),
        (BACKWARDS, LIKE_X, (), lambda x: np.cumsum(x[::-1])[::-1]),  # zeros at the end add nothing
        (MEAN, A_NUMBER, ("time",), np.mean),
        (LAST, A_NUMBER, ("time",), lambda x: x[-1]),
        (SHARES, LIKE_X, ("time",), lambda x: np.exp(x) / np.exp(x).sum()),
    ],
    ids=["each number", "sum", "forwards", "backwards", "mean", "last", "softmax"],
)
def test_what_padding_changes_is_not_padded(tmp_path, nodes, outputs, exact, of_row):
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, outputs)
    axes, found = exact_axes(bundle, ROWS, tmp_path / "run")
    assert axes == exact
    for row, y in zip(ROWS, found, strict=True):
        np.testing.assert_allclose(y, of_row(np.array(row, "float32")), rtol=1e-6)


def test_each_axis_is_judged_apart(tmp_path):
    """A mean over the queries, a sum over the keys: rows of different numbers of keys run together."""
    nodes = """
        keys = Constant <value = int64[1] {2}> ()
        sums = ReduceSum <keepdims = 0> (pairs, keys)
        y = ReduceMean <axes = [1], keepdims = 0> (sums)
    """
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"pairs": ("float32", ["batch", "queries", "keys"])}, A_NUMBER)
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((1 + n % 3, 1 + n % 5)).astype("float32") for n in range(40)]
    (tmp_path / "run").mkdir()
    table = pa.table({"pairs": pa.array([row.tolist() for row in rows], pa.list_(pa.list_(pa.float32())))})
    pq.write_table(table, tmp_path / "run" / "x.parquet")
    done = predict(bundle, tmp_path / "run" / "x.parquet", tmp_path / "out", progress=False)
    assert (done.exact_axes, done.errors) == (("queries",), 0)
    found = pq.read_table(tmp_path / "out").column("y").to_pylist()
    np.testing.assert_allclose(found, [row.sum(1).mean() for row in rows], rtol=1e-5, atol=1e-6)


def test_whole_numbers_must_be_equal(tmp_path):
    nodes = """
        one = Constant <value = int64 {1}> ()
        sizes = Shape (x)
        long = Gather <axis = 0> (sizes, one)
        same = Cast <to = 7> (x)
        nothing = Sub (same, same)
        lengths = Add (nothing, long)
        y = ReduceMax <axes = [1], keepdims = 0> (lengths)
    """
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, {"y": ("int64", ["batch"])})
    axes, found = exact_axes(bundle, ROWS, tmp_path / "run")
    assert (axes, found) == (("time",), [len(row) for row in ROWS])


def test_rows_that_cannot_run_say_nothing_of_padding(tmp_path):
    nodes = """
        numbers = Constant <value = float[3] {10, 20, 30}> ()
        found = Gather <axis = 0> (numbers, ids)
        y = ReduceMean <axes = [1], keepdims = 0> (found)
    """
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int64", ["batch", "time"])}, A_NUMBER)
    rows = [[9], [9], [9, 9], [0, 1], [2]]
    pq.write_table(pa.table({"ids": rows}), tmp_path / "x.parquet")
    done = predict(bundle, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    assert (done.exact_axes, done.rows, done.errors) == (("time",), 2, 3)
    assert pq.read_table(tmp_path / "out").column("y").to_pylist() == [15, 30]


def test_a_run_that_goes_on_pads_as_it_was_begun(tmp_path):
    bundle = onnx_bundle(tmp_path / "bundle", MEAN, ONE, A_NUMBER)
    source = tmp_path / "in"
    source.mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": pa.array(ROWS, pa.list_(pa.float32()))}), source / f"{name}.parquet")
    first = predict(bundle, source, tmp_path / "out", progress=False)
    (tmp_path / "out" / "b.parquet").unlink()
    second = predict(bundle, source, tmp_path / "out", progress=False)
    assert (second.exact_axes, second.resumed, second.rows) == (first.exact_axes, 1, len(ROWS))
    assert pq.read_table(tmp_path / "out" / "b.parquet") == pq.read_table(tmp_path / "out" / "a.parquet")


FROM_THE_MEAN = "middle = ReduceMean <axes = [0], keepdims = 1> (x)\n y = Sub (x, middle)"
RANKED = "zero = Constant <value = int64 {0}> ()\n y = CumSum (x, zero)"  # what came before in the batch, added up


@pytest.mark.parametrize("nodes", [FROM_THE_MEAN, RANKED], ids=["mean", "sum so far"])
def test_rows_that_see_each_other_run_one_by_one(tmp_path, nodes):
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"x": ("float32", ["batch", 2])}, {"y": ("float32", ["batch", 2])})
    rows = [[1.0, 2.0], [3.0, 5.0], [4.0, 0.0]]
    pq.write_table(pa.table({"x": rows}), tmp_path / "x.parquet")
    done = predict(bundle, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    assert done.one_by_one
    alone = [[0.0, 0.0]] * 3 if nodes == FROM_THE_MEAN else rows
    assert pq.read_table(tmp_path / "out").column("y").to_pylist() == alone


def test_whole_numbers_that_see_each_other(tmp_path):
    nodes = "zero = Constant <value = int64 {0}> ()\n y = CumSum (ids, zero)"
    shape = ["batch", "time"]
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int64", shape)}, {"y": ("int64", shape)})
    pq.write_table(pa.table({"ids": [[1, 2], [3, 4], [5]]}), tmp_path / "x.parquet")
    done = predict(bundle, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    assert (done.one_by_one, pq.read_table(tmp_path / "out").column("y").to_pylist()) == (True, [[1, 2], [3, 4], [5]])


def test_a_row_of_nothing_runs_as_a_zero_and_says_nothing(tmp_path):
    """What a model gives for no step at all is not what it gives for one of padding, and is proven nowhere."""
    nodes = """
        last = Constant <value = int64[1] {1}> ()
        sums = ReduceSum <keepdims = 0> (x, last)
        one = Constant <value = int64 {1}> ()
        zero = Constant <value = int64 {0}> ()
        sizes = Shape (x)
        long = Gather <axis = 0> (sizes, one)
        none = Equal (long, zero)
        more = Cast <to = 1> (none)
        y = Add (sums, more)
    """
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, A_NUMBER)
    axes, found = exact_axes(bundle, [[], [1.0, 2.0], [], [3.0]] * 40, tmp_path / "run")
    assert (axes, found) == ((), [0, 3, 0, 3] * 40)
