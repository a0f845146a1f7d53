"""Memory limits: smaller batches, rows that exceed the limit alone, and tables of a million rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import run_table, to_lists, write_source
from handwritten_bundles import build_manifest, write_onnx_bundle

from keras_attn_export import _machine
from keras_attn_export._batch import row_runner
from keras_attn_export._batch.memory_limit import parse_memory_limit
from keras_attn_export._format.manifest import Spec
from keras_attn_export._tables import parquet_files

# The products of all pairs of numbers of a row: n numbers need n * n products.
PRODUCTS = """
    one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()
    across = Unsqueeze (x, one)
    down = Unsqueeze (x, two)
    products = Mul (across, down)
"""
ROW_COUNTS = (100_000, 1_000_000)

# Prints its own peak memory: the peak that `wait` returns includes the process that forked it.
COMMAND = """
import re, sys
from pathlib import Path
from keras_attn_export._cli.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


@pytest.fixture
def product_bundle(tmp_path):
    nodes = f"{PRODUCTS}\n y = ReduceMax <axes = [1, 2], keepdims = 0> (products)"
    inputs, outputs = {"x": ("float32", ["batch", "time"])}, {"y": ("float32", ["batch"])}
    return write_onnx_bundle(tmp_path / "bundle", nodes, inputs, outputs)


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_beyond_the_limit_run_in_smaller_batches(product_bundle, tmp_path, workers):
    """32 rows of 1,000 numbers are 128 MB of products, of which 32 MB are allowed: 8 rows at most."""
    rows = [row.astype("float32") for row in np.random.default_rng(0).standard_normal((70, 1000))]
    options = {"limit_memory": "32MiB", "workers": workers, "batch_size": 32}
    _, actual, errors = run_table(product_bundle, pa.table({"x": to_lists(rows)}), tmp_path, **options)
    assert errors == []
    np.testing.assert_allclose(actual["y"], [np.outer(row, row).max() for row in rows], rtol=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_row_too_large_alone_is_the_only_error(product_bundle, tmp_path, workers):
    """5,000 numbers take 100 MB; 2,000 take 16 MB, also in a second thread at the same time."""
    rows = [np.full(size, number + 1, "float32") for number, size in enumerate([1000, 10, 5000, 2000, 7, 2600])]
    options = {"limit_memory": 40 * 2**20, "workers": workers, "batch_size": 1}
    _, actual, (error,) = run_table(product_bundle, pa.table({"x": to_lists(rows)}), tmp_path, **options)
    assert actual["y"] == [1, 4, 16, 25, 36]
    assert (error["row"], error["reason"]) == (2, "needs more memory than `limit_memory`")


def test_output_too_large_for_a_list_fails_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(row_runner, "MAX_LIST_BYTES", 2**20)
    nodes, shape = f"{PRODUCTS}\n y = Identity (products)", ["batch", "time", "time"]
    bundle = write_onnx_bundle(tmp_path / "b", nodes, {"x": ("float32", ["batch", "time"])}, {"y": ("float32", shape)})
    table = pa.table({"x": to_lists([np.ones(n, "float32") for n in (2, 2000, 1)])})
    _, actual, (error,) = run_table(bundle, table, tmp_path)
    assert [np.shape(y) for y in actual["y"]] == [(2, 2), (1, 1)]
    assert (error["row"], error["reason"]) == (1, "needs more memory than `limit_memory`")


def test_record_batches_have_bounded_bytes(tmp_path, monkeypatch):
    """Equal numbers have almost no bytes in the file."""
    monkeypatch.setattr(parquet_files, "CHUNK_BYTES", 2**20)
    pq.write_table(pa.table({"x": to_lists([np.zeros(10_000, "float32")] * 50)}), tmp_path / "x.parquet")
    with parquet_files.open_parquet(tmp_path / "x.parquet") as opened:
        rows = [batch.num_rows for batch in parquet_files.iterate_batches(opened)]
    assert (sum(rows), max(rows)) == (50, 13)


def test_chunks_have_bounded_bytes(monkeypatch):
    """Rows of 3 and 100 floats, with as many outputs: 24 and 800 bytes."""
    monkeypatch.setattr(row_runner, "CHUNK_BYTES", 1000)
    x = Spec("x", "float32", ("batch", "time"))
    table = pa.table({"x": to_lists([[1.0] * n for n in [3] * 50 + [100] * 3])})
    chunks = list(row_runner.split_into_chunks(table.to_batches()[0], build_manifest([x], [x]), [x]))
    assert [len(chunk.row_bytes) for chunk in chunks] == [41, 9, 2, 1]
    assert max(chunk.row_bytes.sum() for chunk in chunks) <= 1000 + 800  # one additional row


@pytest.mark.parametrize(("text", "limit"), [("2G", 2**31), ("512MiB", 2**29), ("1.5 gb", 3 * 2**29), (2**20, 2**20)])
def test_memory_limit_accepts_units(text, limit):
    assert parse_memory_limit(text) == limit


def test_default_limit_is_half_of_the_memory_of_the_control_group(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("3000000000\n")
    (tmp_path / "memory.current").write_text("2900000000\n")
    monkeypatch.setattr(_machine, "CONTROL_GROUP", tmp_path)
    _machine.measure_available_memory.cache_clear()
    assert parse_memory_limit(None) == 50_000_000
    _machine.measure_available_memory.cache_clear()


def measure_peak_mib(bundle, folder, rows, files, **options):
    """Run a table in a new process; return the peak memory of the process after a check of the written ids."""
    source, target = folder / f"in-{rows}", folder / f"out-{rows}"
    names = [f"part-{number:03d}.parquet" for number in range(files)]
    write_source(source, dict.fromkeys(names, rows // files), row_group=rows // files, **options)
    command = [sys.executable, "-c", COMMAND, "predict", bundle, source, target, "--json"]
    result = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, timeout=900, check=True)
    ids = [number for name in names for number in pq.read_table(target / name, columns=["id"])["id"].to_pylist()]
    assert ids == list(range(rows))
    return int(result.stdout.split()[-1]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's /proc; CI runs Linux")
def test_rows_with_large_outputs_need_bounded_memory(exported, tmp_path):
    """30,000 rows of about 400 keys take 500 MB, and their outputs 130 MB."""
    peaks = [measure_peak_mib(exported, tmp_path, rows, 1, typical=2000) for rows in (10_000, 30_000)]
    assert peaks[1] - peaks[0] < 100, peaks


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's /proc; CI runs Linux")
@pytest.mark.parametrize("files", [1, 100])
def test_a_million_rows_need_no_more_memory_than_fewer(exported, tmp_path, files):
    peaks = [measure_peak_mib(exported, tmp_path, rows, files, typical=8, longest=20) for rows in ROW_COUNTS]
    assert peaks[1] - peaks[0] < 60, peaks  # a million of these rows take 600 MB
