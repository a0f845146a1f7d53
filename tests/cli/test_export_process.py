"""`keras-attn export` as a shell starts it: what arrives on its streams, and signals."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from bundles import names
from interrupts import heeding_interrupts

from keras_attn_export import load_bundle
from keras_attn_export._cli.describe import describe


def export_process(model, bundle):
    """Start `keras-attn export` as a shell would: in a process group of its own."""
    command = [sys.executable, "-m", "keras_attn_export", "export", str(model), str(bundle)]
    with heeding_interrupts():
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )


@pytest.mark.slow
def test_a_successful_export_is_silent_on_stderr(model_file, tmp_path):
    with export_process(model_file, tmp_path / "bundle") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    described, _, last = out.partition("\n\n")
    bundle = load_bundle(tmp_path / "bundle")
    assert described.splitlines() == describe(bundle)
    assert re.fullmatch(rf"Exported to {bundle.path}: it matches Keras\.\n", last)
    assert bundle.report.refused == {}


def wait_for(condition, process, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.stderr.read()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


RUNNING = "bundle/saved_model/fingerprint.pb"  # soon a process of its own runs the SavedModel, which this one traces
STOPS = [  # a signal, to a process or to its group, as a terminal does; what is there before; exit code; what is said
    (signal.SIGINT, os.killpg, "bundle", 130, "interrupted: nothing was written\n"),  # TensorFlow is being imported
    (signal.SIGTERM, os.kill, RUNNING, 143, ""),
    pytest.param(signal.SIGHUP, os.kill, RUNNING, 129, "", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "send", "there", "code", "said"), STOPS)
def test_being_told_to_end_leaves_nothing(number, send, there, code, said, model_file, tmp_path):
    with export_process(model_file, tmp_path / "made" / "bundle") as process:
        wait_for(lambda: list(tmp_path.glob(f"made/.bundle.*.partial/{there}")), process)
        time.sleep(0.3)
        send(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", said)
    assert names(tmp_path) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the group has no process left
