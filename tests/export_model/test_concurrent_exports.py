"""Concurrent exports to one folder: one complete bundle remains, and exports that come second raise an error."""

import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from environments import build_environment
from kill_exports import load_name, make_bundle, stage

WRITER = """
import json, sys
from pathlib import Path
from kill_exports import stage
from keras_attn_export import BundleError
target, source, overwrite, times = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4])
print("null", flush=True)
sys.stdin.readline()
successes, errors = 0, []
for _ in range(times):
    try:
        stage(source, target, overwrite=overwrite)
        successes += 1
    except BundleError as error:
        errors.append(str(error))
print(json.dumps([successes, errors]))
"""


def run_writers(target, sources, *, overwrite, times, while_running=lambda: None):
    """Write each source to the target `times` times in a process of its own; return successes and errors by source."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": build_environment()}
    arguments = [[target, source, overwrite, times] for source in sources]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, *map(str, row)], **options) for row in arguments]
    for writer in writers:
        assert writer.stdout.readline() == "null\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    while any(writer.poll() is None for writer in writers):
        while_running()
    return [json.loads(writer.communicate()[0]) for writer in writers]


@pytest.fixture
def sources(tmp_path):
    return [make_bundle(tmp_path / "sources" / name, name) for name in "abcd"]


@pytest.fixture
def target(tmp_path):
    (tmp_path / "exports").mkdir()
    return tmp_path / "exports" / "bundle"


@pytest.mark.slow
def test_concurrent_overwriting_leaves_a_complete_bundle(target, sources):
    stage(sources[0], target)
    loads = Counter()

    def load():
        loads[load_name(target)] += 1  # or an error, if the bundle is replaced during the read
        time.sleep(0.001)

    results = run_writers(target, sources, overwrite=True, times=30, while_running=load)
    assert all(successes + len(errors) == 30 for successes, errors in results)
    assert sum(successes for successes, _ in results) > 30
    assert sum(loads[name] for name in "abcd") > 20
    assert load_name(target) in "abcd"
    assert os.listdir(target.parent) == ["bundle"]


@pytest.mark.slow
def test_concurrent_exports_without_overwriting_keep_the_first(target, sources):
    results = run_writers(target, sources, overwrite=False, times=1)
    assert sorted(successes for successes, _ in results) == [0, 0, 0, 1]
    for successes, errors in results:
        assert successes or "already exists" in errors[0] or "Directory not empty" in errors[0]
    assert load_name(target) in "abcd"
    assert os.listdir(target.parent) == ["bundle"]
