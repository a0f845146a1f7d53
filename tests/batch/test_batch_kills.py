"""Runs over tables and workers of Ray that are killed: no row is lost, none comes twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batch_processes import WORKERS, ended, family, workers
from batch_tables import files_of, leftovers, own_files, plain_loop, read_errors, same_rows, with_nulls, write_source
from bundles import finished, flip_byte
from environments import with_support
from interrupts import heeding_interrupts

from keras_attn_export import predict

SCRIPT = Path(__file__).with_name("kill_predict.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs Linux's /proc; CI runs Linux"),
]


def tables(bundle, folder, parts, rows):
    """Write a source with one broken file and a row that cannot run; return it, its right outputs and the row's id."""
    write_source(folder, {f"part-{number}.parquet": rows for number in range(parts)}, row_group=rows // 8)
    oracle = plain_loop(bundle, folder)
    first = folder / "part-0.parquet"
    table = with_nulls(pq.read_table(first), rows // 2)
    pq.write_table(table, first, row_group_size=rows // 8, write_page_checksum=True)
    (folder / "broken.parquet").write_bytes(b"this is no table")
    return folder, oracle, table.column("id")[rows // 2].as_py()


def assert_whole(target, oracle, failing):
    """Check that a destination holds all rows but those that cannot be run, and lists those."""
    same_rows(target, oracle, without=[failing])
    assert {each["key"] for each in read_errors(target)} == {str(failing), None}
    assert leftovers(target) == []


@pytest.mark.parametrize("mended", [False, True], ids=["first run", "run after a part was mended"])
def test_run_killed_before_any_rename_or_removal_is_completed_by_the_next(exported, tmp_path, mended):
    """A mended part has a file that lacks rows, and errors that list them: both stay until others are there."""
    source, oracle, failing = tables(exported, tmp_path / "in", 2, 32)
    (tmp_path / "runs").mkdir()
    broken = shutil.copy(source / "part-0.parquet", tmp_path / "broken")
    flip_byte(broken)
    command = [sys.executable, SCRIPT, exported, source, tmp_path / "runs", *([broken] if mended else [])]
    done = finished(*command, env=with_support())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    # the manifest, two parts, the errors of one of them and of the broken file, and all errors; in a mended run
    # also what is removed
    assert found["kills"] >= 6
    assert_whole(tmp_path / "runs" / "whole", oracle, failing)


def test_killed_ray_worker_costs_no_row(exported, tmp_path, ray_address):
    source, oracle, failing = tables(exported, tmp_path / "in", 6, 200)
    killed = []

    def kill_one(done, rows):
        if not killed and (at_work := workers([os.getpid()])):
            os.kill(at_work[0], signal.SIGKILL)
            killed.append(at_work[0])

    done = predict(exported, source, tmp_path / "out", engine="ray", key="id", batch_size=1, progress=kill_one)
    assert len(killed) == 1
    assert (done.rows, done.errors, done.resumed) == (200 * 6 - 1, 2, 0)
    assert_whole(tmp_path / "out", oracle, failing)


@pytest.mark.parametrize(("number", "on_cluster"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_run_on_ray_resumes_after_its_main_process_ended(exported, tmp_path, ray_address, number, on_cluster):
    """On a cluster, workers may still write when the next run begins. A Ray of the run's own ends with it."""
    source, oracle, failing = tables(exported, tmp_path / "in", 20, 200)
    target, environment = tmp_path / "out", {"RAY_ADDRESS": ray_address} if on_cluster else {}
    command = [sys.executable, "-m", "keras_attn_export", "predict", exported, source, target, "--engine", "ray"]
    command += ["--workers", WORKERS, "--batch-size", 1, "--key", "id"]
    with heeding_interrupts():
        process = subprocess.Popen(
            [*map(str, command)], env=os.environ | environment, stderr=subprocess.PIPE, text=True
        )
    until = time.monotonic() + 120
    while not files_of(target) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    below = family([process.pid])
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    before = files_of(target)
    assert 0 < len(before) < 20
    assert own_files(target)
    if number == signal.SIGTERM:
        assert (process.returncode, said.count("\n") <= 1, leftovers(target)) == (143, True, []), said
    done = predict(exported, source, target, engine="ray", key="id", progress=False)
    assert done.errors == 2
    assert done.resumed >= len(before)  # a worker may have finished one more part before it ended
    assert {name: file for name, file in files_of(target).items() if name in before} == before
    assert_whole(target, oracle, failing)
    assert ended(below, patience=150) == {}  # the last processes of Ray look once a minute whether the first is there
