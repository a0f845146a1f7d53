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
from keras_attn_export._tracing.fresh_process import SavedModelRun

# starts a run, tells of it, and waits to be killed
PARENT = """
import sys, time
from pathlib import Path
from keras_attn_export._tracing.fresh_process import SavedModelRun
run = SavedModelRun()
run.begin(*map(Path, sys.argv[1:]))
print(run._process.pid, flush=True)
time.sleep(600)
"""


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
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return met


def test_what_it_says_when_it_fails_and_that_it_ends_with_the_block(tmp_path):
    with SavedModelRun() as run:
        run.begin(tmp_path / "absent", tmp_path / "cases.npz", tmp_path / "results.npz")
        with pytest.raises(ExportError, match=r"does not run in a fresh process: .*absent"):
            run.outputs()
    with SavedModelRun() as run:
        process = run._process
    assert process.returncode is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name; CI runs Linux")
def test_it_ends_with_a_process_that_is_killed_while_it_is_at_work(tmp_path):
    double = tf.function(lambda x: {"y": 2 * x}).get_concrete_function(tf.TensorSpec([None], tf.float32, name="x"))
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), {"serving_default": double})
    told = [str(tmp_path / name) for name in ("model", "cases.npz", "results.npz")]
    os.mkfifo(told[1])  # nobody writes to it: who reads it waits
    with subprocess.Popen([sys.executable, "-c", PARENT, *told], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert waited_for(lambda: reads(told[1]))
        parent.send_signal(signal.SIGKILL)
    assert waited_for(lambda: not is_running(pid))
