"""Exports that are killed: the old bundle or the new one is at its place, or is put back by the next load."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import kill_exports
import pytest
from environments import build_environment
from sigint import enable_interrupts
from small_bundle import run_command

from keras_attn_export import load_bundle

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork; CI runs Linux")


@pytest.fixture
def place():
    """Return a folder, in memory where that is possible: hundreds of kills wait for the disk otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_bundle_is_complete_after_a_stop_at_any_line(place):
    with enable_interrupts():
        done = run_command(sys.executable, kill_exports.__file__, place, timeout=600, env=build_environment())
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert not result["problems"], result
    assert result["stopped"] > 400


EXPORT = """
import os, signal, sys
from pathlib import Path
import keras
from keras_attn_export import export_model

moment, count = int(sys.argv[2]), 0

def pass_moment(*_):
    global count
    count += 1
    if count == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def rename_slowly(path, target, rename=Path.rename):
    pass_moment()
    rename(path, target)
    pass_moment()

Path.rename = rename_slowly
inputs = keras.Input((2,))
model = keras.Model(inputs, keras.layers.Dense(1)(inputs), name="new")
export_model(model, sys.argv[1], overwrite=True, progress=pass_moment)
print(count)
"""


def export_and_kill(place, moment):
    """Replace a bundle, and kill the export when it begins a step, or before or after a rename."""
    return subprocess.run([sys.executable, "-c", EXPORT, place, str(moment)], capture_output=True, check=False)


@pytest.mark.nightly  # eleven exports in processes of their own
def test_killed_export_leaves_a_complete_bundle(bundle):
    old, names = load_bundle(bundle).manifest["model"], []
    steps = int(export_and_kill(shutil.copytree(bundle, bundle.with_name("other")), 0).stdout) - 6
    moments = [1, steps // 2, *range(steps - 1, steps + 7)]  # three renames at the end
    for moment in moments:
        assert export_and_kill(bundle, moment).returncode == -signal.SIGKILL
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a bundle that is restored
            names.append(load_bundle(bundle).manifest["model"])
    assert len(moments) == 10
    assert names == [old] * 7 + ["new"] * 3
