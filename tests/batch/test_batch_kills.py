"""Runs that are stopped at any moment, and workers of Ray that die: nothing is lost, nothing comes twice."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from batch_killing import BROKEN, ENDS, MENDED, files_of, leftovers
from batch_processes import WORKERS, ended, family, workers
from batch_tables import own_files, plain_loop, read_errors, same_rows, with_nulls, write_source
from bundles import finished, flip_byte
from environments import with_support
from interrupts import heeding_interrupts

from keras_attn_export import predict

SCRIPT = Path(__file__).with_name("batch_killing.py")


pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs Linux's /proc; CI runs Linux")


@pytest.fixture
def kills(pytestconfig):
    return pytestconfig.getoption("--kills")


@pytest.fixture
def place(tmp_path):
    """Return a folder, in memory where that is possible: each part waits for the disk otherwise."""
    memory = Path("/dev/shm") / f"keras-attn-batch-{os.getpid()}"
    if not memory.parent.is_dir():
        yield tmp_path
        return
    memory.mkdir()
    yield memory
    shutil.rmtree(memory)


def tables(folder, parts, rows):
    """Write a source of which one row cannot be run, and one part not be read; return it and the row's id."""
    # of several row groups, so that a part is written in several steps
    files = {f"{number % 3}/part-{number}.parquet": rows for number in range(parts)}
    write_source(folder, files, row_group=max(1, rows // 8))
    table = with_nulls(pq.read_table(folder / MENDED), rows // 2)
    pq.write_table(table, folder / MENDED, row_group_size=max(1, rows // 8), write_page_checksum=True)
    (folder / "broken.parquet").write_bytes(b"this is no table")
    return folder, table.column("id")[rows // 2].as_py()


def oracle_of(bundle, source, failing):
    """Return what the plain loop gives, for the rows and parts that can be run."""
    good = source.parent / "good"
    for file in source.rglob("part-*.parquet"):
        table, copy = pq.read_table(file), good / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pyarrow.compute.not_equal(table["id"], failing)), copy)
    return plain_loop(bundle, good)


def whole(target, oracle, failing):
    """Check that a destination holds all rows but those that cannot be run, and says which those are."""
    same_rows(target, oracle)
    assert [each["key"] for each in read_errors(target)] == [str(failing), None]
    assert leftovers(target) == []


def stopped(kind, bundle, place, seed, points, *, parts=30, rows=300):
    """Run batch_killing.py, check the run that nobody stopped, and return what became of the others."""
    source, failing = tables(place / "in", parts, rows)
    runs = place / "runs"
    runs.mkdir()
    shutil.copy(source / MENDED, runs / BROKEN)
    flip_byte(runs / BROKEN)
    command = (sys.executable, SCRIPT, kind, bundle, source, runs, seed, points)
    with heeding_interrupts():
        done = finished(*command, timeout=120 + 20 * points, env=with_support())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{kind}: {json.dumps(found, indent=1)}")
    assert not found["problems"], found
    whole(runs / "whole", oracle_of(bundle, source, failing), failing)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_runs_stopped_at_random_moments(exported, place, random_seed, kills, full):
    points, sizes = (kills, {}) if full else (3, {"parts": 10, "rows": 100})
    found = stopped("times", exported, place, random_seed, points, **sizes)
    assert found["points"] == points
    assert points < 20 or sum(count for name, count in found["found"].items() if name.endswith("midway")) > points / 4


@pytest.mark.slow
@pytest.mark.parametrize("moments", [["before"], pytest.param(["before", "after"], marks=pytest.mark.slow)])
def test_runs_killed_at_every_rename(exported, place, random_seed, moments):
    found = stopped("renames", exported, place, random_seed, len(moments), parts=2, rows=30)
    # the manifest, two parts, the errors of one of them and of the one that is broken, and all errors
    assert found["found"] == {f"killed {moment}": 6 for moment in moments}


@pytest.mark.slow
def test_runs_killed_while_a_mended_file_is_taken_again(exported, place, random_seed):
    """Its file lacks rows, and its errors say so: one must not go before the other has come."""
    found = stopped("mended", exported, place, random_seed, 1, parts=2, rows=30)
    assert found["found"]["killed before"] == found["found"]["killed after"] > 8


@contextlib.contextmanager
def killing_workers(rng, times):
    """Kill that many workers of Ray's below this process, at moments after one began to work."""
    killed, over = [], threading.Event()

    def kill():
        while len(killed) < times and not over.is_set():
            if workers([os.getpid()]):
                over.wait(rng.uniform(0, 0.5))
                if at_work := workers([os.getpid()]):
                    killed.append(rng.choice(at_work))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(killed[-1], signal.SIGKILL)
            over.wait(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def killed_workers(bundle, place, rng, times, *, parts):
    """Kill workers during one run on Ray, which ends well by itself, and return how many were killed."""
    source, failing = tables(place / "in", parts, 200)
    with killing_workers(rng, times) as killed:
        done = predict(bundle, source, place / "out", engine="ray", key="id", batch_size=1, progress=False)
    assert (done.rows, done.errors, done.resumed) == (200 * parts - 1, 2, 0)
    whole(place / "out", oracle_of(bundle, source, failing), failing)
    return len(killed)


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_of_ray_that_are_killed_cost_time_only(exported, place, random_seed, kills, ray_address, full):
    """At most two a run: three are what a part may cost, and both may have worked on one."""
    rng = random.Random(random_seed)
    if not full:
        assert killed_workers(exported, place, rng, 1, parts=6) == 1
        return
    runs = [killed_workers(exported, place / str(number), rng, 2, parts=12) for number in range((kills + 1) // 2)]
    assert sum(runs) >= kills - 2


def started(bundle, source, target, **environment):
    """Start the command on Ray in a process of its own."""
    command = [sys.executable, "-m", "keras_attn_export", "predict", bundle, source, target, "--engine", "ray"]
    with heeding_interrupts():
        return subprocess.Popen(
            [*map(str, command), "--workers", str(WORKERS), "--batch-size", "1", "--key", "id", "--json"],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def goes_on(bundle, source, target, oracle, failing):
    """Go on to the end with a run, and check that what was done before was not done again."""
    before = files_of(target)
    done = predict(bundle, source, target, engine="ray", key="id", progress=False)
    assert done.errors == 2
    assert done.resumed >= len(before)  # a worker may have finished one more part before it ended
    assert {name: place for name, place in files_of(target).items() if name in before} == before
    whole(target, oracle, failing)


@pytest.mark.slow
def test_runs_on_a_cluster_whose_main_process_is_stopped(exported, place, random_seed, kills, ray_address):
    """What works for it on the cluster ends with it, if not at once: the next run does not wait for that."""
    rng = random.Random(random_seed)
    source, failing = tables(place / "in", 20, 400)
    oracle = oracle_of(exported, source, failing)
    begun = time.monotonic()
    process = started(exported, source, place / "whole", RAY_ADDRESS=ray_address)
    assert (process.communicate()[0], process.returncode) == (None, 1)  # 1: a part is broken
    takes = time.monotonic() - begun
    midway = 0
    for number in range(kills):
        target, deed = place / f"out-{number}", rng.choice([signal.SIGKILL, signal.SIGKILL, *ENDS])
        process = started(exported, source, target, RAY_ADDRESS=ray_address)
        while number % 2 and not files_of(target) and process.poll() is None:
            time.sleep(0.01)  # every other one has begun to write: to start takes longer than to run
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 0.3 if number % 2 else 1.05 * takes))
        process.send_signal(deed)
        _, said = process.communicate(timeout=60)
        midway += 0 < len(files_of(target)) < 20
        if deed != signal.SIGKILL and process.returncode not in (-deed, 1):
            assert (process.returncode, said.count("\n") <= 1) == (ENDS[deed], True), said
            assert leftovers(target) == []
        goes_on(exported, source, target, oracle, failing)
        shutil.rmtree(target)
    assert midway >= kills // 4, midway


@pytest.mark.slow
def test_no_process_of_ray_outlives_a_main_process_that_is_killed(exported, place, random_seed, kills, ray_address):
    """Each run has a Ray of its own; the last of its processes look once a minute whether it is still there."""
    rng, below = random.Random(random_seed), set()
    source, failing = tables(place / "in", 20, 200)
    oracle = oracle_of(exported, source, failing)
    for number in range(max(1, kills // 7)):
        target = place / f"out-{number}"
        process, until = started(exported, source, target), time.monotonic() + 120
        while not workers([process.pid]) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 2))
        below |= family([process.pid])
        process.kill()
        process.communicate()
        assert own_files(target)
        goes_on(exported, source, target, oracle, failing)
    assert len(below) > 5
    assert ended(below, patience=150) == {}
