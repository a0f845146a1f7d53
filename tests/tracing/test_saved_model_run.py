"""The fresh process of a SavedModel: it runs what it is told of, and outlives nobody."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from keras_attn_export import ExportError
from keras_attn_export._tracing.saved_model_run import SavedModelRun

# starts a run, tells of it, and waits to be killed
PARENT = """
import sys, time
from pathlib import Path
from keras_attn_export._tracing.saved_model_run import SavedModelRun
run = SavedModelRun()
if len(sys.argv) > 1:
    run.begin(*map(Path, sys.argv[1:]))
print(run._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    module = tf.Module()
    double = tf.function(lambda x: {"y": 2 * x}).get_concrete_function(tf.TensorSpec([None], tf.float32, name="x"))
    folder = tmp_path_factory.mktemp("saved") / "model"
    tf.saved_model.save(module, str(folder), {"serving_default": double})
    return folder


def is_running(pid):
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def reads(pipe):
    with contextlib.suppress(OSError):  # there is no reader yet
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # and stays open: what reads it waits on
        return True
    return False


def waited_for(condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_what_it_says_when_it_fails_and_that_it_ends_with_the_block(tmp_path):
    with SavedModelRun() as run:
        run.begin(tmp_path / "absent", tmp_path / "cases.npz", tmp_path / "results.npz")
        with pytest.raises(ExportError, match=r"does not run in a fresh process: .*absent"):
            run.outputs()
    with SavedModelRun() as run:
        process = run._process
    assert process.returncode is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name; CI runs Linux")
@pytest.mark.parametrize(
    "begun", [pytest.param(False, marks=pytest.mark.out_of_turn, id="waiting"), pytest.param(True, id="at work")]
)
def test_it_ends_with_a_process_that_is_killed(begun, saved_model, tmp_path):
    os.mkfifo(tmp_path / "cases.npz")  # nobody writes to it: who reads it waits
    told = [saved_model, tmp_path / "cases.npz", tmp_path / "results.npz"] if begun else []
    command = [sys.executable, "-c", PARENT, *map(str, told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert not begun or waited_for(lambda: reads(tmp_path / "cases.npz"))
        parent.send_signal(signal.SIGKILL)
    assert waited_for(lambda: not is_running(pid))
