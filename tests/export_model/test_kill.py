"""Killed exports: the target is the complete old or new bundle, or the next load restores the old bundle."""

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
def memory_folder():
    """Temporary folder, in memory if possible, since hundreds of exports would wait for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_bundle_is_complete_after_a_stop_at_any_line(memory_folder):
    with enable_interrupts():
        run = run_command(sys.executable, kill_exports.__file__, memory_folder, timeout=600, env=build_environment())
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert not result["problems"], result
    assert result["stopped"] > 400


EXPORT = """
import os, signal, sys
from pathlib import Path
import keras
from keras_attn_export import export_model

kill_at, count = int(sys.argv[2]), 0

def count_or_kill(*_):
    global count
    count += 1
    if count == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def count_rename(path, target, rename=Path.rename):
    count_or_kill()
    rename(path, target)
    count_or_kill()

Path.rename = count_rename
inputs = keras.Input((2,))
model = keras.Model(inputs, keras.layers.Dense(1)(inputs), name="new")
export_model(model, sys.argv[1], overwrite=True, progress=count_or_kill)
print(count)
"""


def export_and_kill(path, kill_at):
    """Replace a bundle, and kill the export at an event: the start of a step, or before or after a rename."""
    return subprocess.run([sys.executable, "-c", EXPORT, path, str(kill_at)], capture_output=True, check=False)


@pytest.mark.nightly  # eleven processes that export
def test_killed_export_leaves_a_complete_bundle(bundle):
    old_name, names = load_bundle(bundle).manifest["model"], []
    steps = int(export_and_kill(shutil.copytree(bundle, bundle.with_name("other")), 0).stdout) - 6
    events = [1, steps // 2, *range(steps - 1, steps + 7)]  # the last six events are those of three renames
    for event in events:
        assert export_and_kill(bundle, event).returncode == -signal.SIGKILL
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a bundle that is restored
            names.append(load_bundle(bundle).manifest["model"])
    assert len(events) == 10
    assert names == [old_name] * 7 + ["new"] * 3
