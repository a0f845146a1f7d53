"""Batches that need too much memory become smaller, and only a row that needs too much by itself is given up."""

import numpy as np
import pyarrow as pa
import pytest
from batch_tables import floats, run_table
from onnx_bundles import onnx_bundle

from keras_attn_export import load_bundle
from keras_attn_export._batch import memory, run_parts, windows
from keras_attn_export._batch.memory import memory_limit
from keras_attn_export._batch.session import LimitedSession

# The products of every two numbers of a row: n numbers take n * n.
PRODUCTS = """
    one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()
    across = Unsqueeze (x, one)
    down = Unsqueeze (x, two)
    products = Mul (across, down)
"""


@pytest.fixture
def pairs(tmp_path):
    inputs, outputs = {"x": ("float32", ["batch", "time"])}, {"y": ("float32", ["batch"])}
    return onnx_bundle(
        tmp_path / "bundle", f"{PRODUCTS}\n y = ReduceMax <axes = [1, 2], keepdims = 0> (products)", inputs, outputs
    )


def run(bundle, rows, folder, **options):
    """Run rows of numbers; return the output of each, and those that failed."""
    _, found, errors = run_table(bundle, pa.table({"x": floats(rows)}), folder, **options)
    return found["y"], errors


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_too_large_together_run_in_smaller_batches(pairs, tmp_path, workers):
    """32 rows of 1,000 numbers are 128 MB of products, of which 32 MB are allowed: 8 rows at most."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal(1000).astype("float32") for _ in range(70)]
    found, errors = run(pairs, rows, tmp_path, limit_memory="32MiB", workers=workers, batch_size=32)
    assert errors == []
    np.testing.assert_allclose(found, [np.outer(row, row).max() for row in rows], rtol=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_row_too_large_by_itself_fails_alone(pairs, tmp_path, workers):
    sizes = [1000, 10, 5000, 2000, 7, 1500]  # 5,000 take 100 MB; 2,000 16 MB, while others want as much
    rows = [np.full(size, number + 1, "float32") for number, size in enumerate(sizes)]
    found, errors = run(pairs, rows, tmp_path, limit_memory=40 * 2**20, workers=workers, batch_size=1)
    assert found == [1, 4, 16, 25, 36]
    (error,) = errors
    assert (error["row"], error["reason"]) == (2, "needs more than the 40 MiB that the model may take")


def test_single_row_gets_memory_that_earlier_runs_fragmented(pairs):
    """2,000 numbers are 16 MB of products, which the arena keeps; 2,600 are 27 of the 32 that are allowed."""
    session = LimitedSession(load_bundle(pairs), "cpu", 32 * 2**20, threads=2)
    for run, size in ((session.run, 2000), (session.run_alone, 2600)):
        assert run(["y"], {"x": np.ones((1, size), "float32")}) == [1]


def test_output_beyond_the_limit_fails_its_row(tmp_path, monkeypatch):
    nodes = f"{PRODUCTS}\n y = Identity (products)\n z = Neg (products)"
    outputs = dict.fromkeys("yz", ("float32", ["batch", "time", "time"]))
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"x": ("float32", ["batch", "time"])}, outputs)
    table = pa.table({"x": floats([np.ones(n, "float32") for n in (2, 200_000, 1)])})
    _, found, (error,) = run_table(bundle, table, tmp_path, limit_memory="100M")
    assert [np.shape(y) for y in found["y"]] == [(2, 2), (1, 1)]
    assert (error["row"], error["reason"]) == (1, "has an output of 152,588 MiB, and 100 MiB are the limit")
    monkeypatch.setattr(run_parts, "MOST_BYTES", 2**20)  # of a column, and both together have more
    _, found, errors = run_table(bundle, pa.table({"x": floats([np.ones(400, "float32")])}), tmp_path / "two")
    assert (np.shape(found["z"]), errors) == ((1, 400, 400), [])


def test_windows_are_bounded_by_unpacked_size(sums, tmp_path, monkeypatch):
    """Equal numbers are packed to nothing in the file."""
    rows, honest = [], run_parts.read_window
    monkeypatch.setattr(run_parts, "read_window", lambda batch, *rest: rows.append(len(batch)) or honest(batch, *rest))
    monkeypatch.setattr(run_parts, "WINDOW_BYTES", 2**20)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2**20)
    done, _, _ = run_table(sums, pa.table({"x": floats([np.zeros(10_000, "float32")] * 200)}), tmp_path)
    assert done.rows == 200
    assert 20 <= max(rows) <= 26


@pytest.mark.parametrize(
    ("asked", "limit"), [("2G", 2 * 2**30), ("512MiB", 2**29), ("1.5 gb", 3 * 2**29), (2**20, 2**20)]
)
def test_limit_of_memory_may_have_a_unit(asked, limit):
    assert memory_limit(asked) == limit


def test_default_limit_is_half_of_what_the_control_group_leaves_free(monkeypatch, tmp_path):
    (tmp_path / "most").write_text("3000000000\n")
    (tmp_path / "used").write_text("2900000000\n")
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", ((tmp_path / "most", tmp_path / "used"),))
    memory._default.cache_clear()
    assert memory_limit(None) == 50_000_000
    memory._default.cache_clear()
