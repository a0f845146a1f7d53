"""Concurrent exports to one folder: one whole bundle is left, and the other exports raise an error."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest
from environments import with_support
from killing import make_bundle, stage, whole

from keras_attn_export import BundleError

WRITER = """
import json, sys
from pathlib import Path
from killing import stage
from keras_attn_export import BundleError
target, source, overwrite, times = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4])
print("null", flush=True)
sys.stdin.readline()
done, errors = 0, []
for _ in range(times):
    try:
        stage(source, target, overwrite=overwrite)
        done += 1
    except BundleError as error:
        errors.append(str(error))
print(json.dumps([done, errors]))
"""


def race(target, sources, *, overwrite, times, meanwhile=lambda: None):
    """Let a process for each source put it in place again and again; return how often each did, and what it said."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": with_support()}
    arguments = [[target, source, overwrite, times] for source in sources]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, *map(str, each)], **options) for each in arguments]
    for writer in writers:
        assert writer.stdout.readline() == "null\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    while any(writer.poll() is None for writer in writers):
        meanwhile()
    return [json.loads(writer.communicate()[0]) for writer in writers]


@pytest.fixture
def sources(tmp_path):
    return [make_bundle(tmp_path / "sources" / name, name) for name in "abcd"]


@pytest.fixture
def target(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "bundle"


@pytest.mark.slow
def test_concurrent_overwriting_leaves_whole_bundles(target, sources):
    stage(sources[0], target)
    seen = []

    def read():
        with contextlib.suppress(BundleError):  # a bundle that was replaced during the read
            seen.append(whole(target, set("abcd")))
        time.sleep(0.001)

    results = race(target, sources, overwrite=True, times=60, meanwhile=read)
    assert results == [[60, []]] * 4
    assert len(seen) > 20
    assert len(set(seen)) > 1
    assert whole(target, set("abcd"))
    assert os.listdir(target.parent) == ["bundle"]


@pytest.mark.slow
def test_concurrent_exports_without_overwriting_keep_the_first(target, sources):
    results = race(target, sources, overwrite=False, times=1)
    assert sorted(done for done, _ in results) == [0, 0, 0, 1]
    for done, errors in results:
        assert done or "already exists" in errors[0] or "another export put a bundle there meanwhile" in errors[0]
    assert whole(target, set("abcd"))
    assert os.listdir(target.parent) == ["bundle"]
