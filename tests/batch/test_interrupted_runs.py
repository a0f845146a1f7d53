"""Runs that are killed or lack room on the disk: finished files stay, and the next run completes the table."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import assert_rows_equal, insert_nulls, list_inodes, read_errors, run_reference_loop, write_source
from handwritten_bundles import COUNTING_NODES, ENDLESS_STEPS, write_onnx_bundle

from keras_attn_export import ExportError, predict

pytestmark = pytest.mark.slow

KILLED_SCRIPT = """
import os, signal, sys
from keras_attn_export import predict

def kill(finished_rows, rows):
    if finished_rows >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

predict(*sys.argv[1:4], key="id", batch_size=4, progress=kill)
"""


@pytest.fixture(scope="module")
def case(exported, tmp_path_factory):
    """A source with a row and a file that fail, and the reference rows."""
    source = write_source(tmp_path_factory.mktemp("source"), {f"{number}.parquet": 40 for number in range(3)})
    oracle = run_reference_loop(exported, source)
    pq.write_table(insert_nulls(pq.read_table(source / "0.parquet"), 20), source / "0.parquet", row_group_size=8)
    (source / "broken.parquet").write_bytes(b"this is no table")
    return source, oracle


def assert_complete(target, oracle):
    assert_rows_equal(target, oracle, excluded_ids=[20])
    assert [error["key"] for error in read_errors(target)] == ["20", None]


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.needs("ray"))])
def test_killed_run_is_completed_by_the_next(exported, case, tmp_path, engine, request):
    if engine == "ray":
        request.getfixturevalue("ray_address")
    source, oracle = case
    target = tmp_path / "out"
    for rows, num_finished in ((0, 0), (1, 0), (41, 1), (120, 2)):
        run = subprocess.run([sys.executable, "-c", KILLED_SCRIPT, exported, source, target, str(rows)], check=False)
        assert run.returncode == -signal.SIGKILL
        assert len(list_inodes(target)) == num_finished
    old_inodes = list_inodes(target)
    result = predict(exported, source, target, key="id", engine=engine, progress=False)
    assert (result.resumed, result.rows, result.errors) == (2, 40, 2)
    assert old_inodes.items() <= list_inodes(target).items()
    assert_complete(target, oracle)


INTERRUPTED_SCRIPT = """
import signal, sys, threading
from keras_attn_export import predict

threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
try:
    predict(*sys.argv[1:], progress=False)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupt_ends_the_runs_of_all_threads(tmp_path):
    """Python waits for its threads at exit; the threads of this run compute an endless loop."""
    numbers = {"x": ("float32", ["batch"])}
    bundle = write_onnx_bundle(tmp_path / "bundle", COUNTING_NODES, numbers, {"y": numbers["x"]})
    pq.write_table(pa.table({"x": pa.array([ENDLESS_STEPS] * 9, pa.float32())}), tmp_path / "x.parquet")
    command = [sys.executable, "-c", INTERRUPTED_SCRIPT, bundle, tmp_path / "x.parquet", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (result.stdout, list_inodes(tmp_path / "out")) == ("interrupted\n", {})


def test_killed_ray_worker_loses_no_row(exported, case, tmp_path, ray_address):
    source, oracle = case
    killed_processes = []

    def kill_worker(finished_rows, rows):
        for process in Path("/proc").glob("[0-9]*") if not killed_processes else ():
            if b"ray::_run_task" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
                killed_processes.append(process.name)
                return
        time.sleep(0.05)

    result = predict(exported, source, tmp_path / "out", key="id", engine="ray", batch_size=1, progress=kill_worker)
    assert (result.rows, result.errors, result.resumed) == (119, 2, 0)
    assert_complete(tmp_path / "out", oracle)


def test_run_on_a_full_disk_keeps_finished_files(exported, tmp_path):
    source = write_source(tmp_path / "in", {f"{n}.parquet": 200 if n == 2 else 20 for n in range(4)})
    predict(exported, source, tmp_path / "complete", progress=False)
    limit, target = (tmp_path / "complete" / "2.parquet").stat().st_size // 2, tmp_path / "out"
    old_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old_limits[1]))
    try:
        with pytest.raises(ExportError, match=r"^Cannot write .*2.parquet: File too large\.$"):
            predict(exported, source, target, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limits)
    assert set(list_inodes(target)) == {"0.parquet", "1.parquet"}
    result = predict(exported, source, target, progress=False)
    assert (result.errors, result.resumed) == (0, 2)
    assert_rows_equal(target, run_reference_loop(exported, source))
