"""Several exports to one place, and real ones without space: one whole bundle, and a sentence."""

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


def script(code, *arguments, **options):
    """Start Python on some code, with the tests' modules at hand."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=with_support(TF_CPP_MIN_LOG_LEVEL="3"),
        **options,
    )


def said(process, timeout=120):
    """Return the lines of JSON that a process prints, once it has ended well."""
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return [json.loads(line) for line in output.splitlines()]


# ------------------------------------------------------ several at one place

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
    writers = [script(WRITER, target, source, overwrite, times, stdin=subprocess.PIPE) for source in sources]
    for writer in writers:
        assert writer.stdout.readline() == "null\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    while any(writer.poll() is None for writer in writers):
        meanwhile()
    results = [said(writer)[0] for writer in writers]
    for writer in writers:
        writer.stdin.close()
    return results


@pytest.fixture
def sources(tmp_path):
    return [make_bundle(tmp_path / "sources" / name, name) for name in "abcd"]


@pytest.fixture
def target(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "bundle"


@pytest.mark.slow
def test_who_overwrites_last_wins_and_readers_see_a_whole_bundle_or_an_error(target, sources):
    stage(sources[0], target)
    seen = []

    def read():
        with contextlib.suppress(BundleError):  # of two bundles, if one replaced the other during the read
            seen.append(whole(target, set("abcd")))
        time.sleep(0.001)

    results = race(target, sources, overwrite=True, times=60, meanwhile=read)
    assert results == [[60, []]] * 4
    assert len(seen) > 20
    assert len(set(seen)) > 1
    assert os.listdir(target.parent) == ["bundle"]


@pytest.mark.slow
def test_without_overwriting_one_wins_and_the_others_are_told(target, sources):
    for _ in range(2):
        results = race(target, sources, overwrite=False, times=1)
        assert sorted(done for done, _ in results) == [0, 0, 0, 1]
        for done, errors in results:
            assert done or "already exists" in errors[0] or "another export put a bundle there meanwhile" in errors[0]
        assert whole(target, set("abcd"))
        assert os.listdir(target.parent) == ["bundle"]
        subprocess.run(["rm", "-r", str(target)], check=True)


# ------------------------------------------------------------------ full disks


EXPORTS = """
import json, os, resource, subprocess, sys
from pathlib import Path
import keras, tf2onnx
from bundles import small_model
from keras_attn_export import ExportError, export_model
model, place = small_model(), Path(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for kind, kilobytes in json.loads(sys.argv[2]):
    if kind == "disk":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, hard))
    try:
        export_model(model, place / "bundle", progress=False)
        result = "done"
    except ExportError as error:
        result = [type(error).__name__, str(error)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(json.dumps([kind, result, os.listdir(place)]), flush=True)
    if kind == "disk":
        subprocess.run(["umount", str(place)], check=True)
"""
SAID = {"disk": "No space left on device.", "file": "File too large."}


@pytest.mark.slow
def test_real_exports_without_space(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("needs to mount a disk; test_atomic_folder.py shows the same without")
    subprocess.run(["umount", str(place)], check=True)
    # what does not fit is, in turn: golden cases, weights, graph, the results of the fresh process, the ONNX file
    sizes = [("disk", size) for size in (16, 60, 110, 160, 210)] + [("file", size) for size in (1, 8, 16)]
    results = said(script(EXPORTS, place, json.dumps(sizes), stderr=subprocess.DEVNULL), timeout=240)
    for kind, result, left in results:
        assert left == (["bundle"] if result == "done" else [])
        assert result == "done" or (result[0] == "BundleError" and result[1].endswith(SAID[kind])), result
    for kind in SAID:
        assert sum(found == kind and result != "done" for found, result, _ in results) >= 3
