"""`keras-attn export` as a shell starts it: what arrives on its streams, and signals."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from bundles import names

from keras_attn_export import load_bundle
from keras_attn_export._cli.describe import describe

pytest_plugins = ("bundle_fixtures", "command_fixtures")


@pytest.fixture
def place(tmp_path):
    """Return an empty folder."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def export_process(model, bundle):
    """Start `keras-attn export` as a shell would: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "keras_attn_export", "export", str(model), str(bundle)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_successful_export_is_silent_on_stderr(model_file, place):
    with export_process(model_file, place / "bundle") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    described, _, last = out.partition("\n\n")
    bundle = load_bundle(place / "bundle")
    assert described == describe(bundle)
    assert re.fullmatch(rf"Exported to {bundle.path} in \d+ s: it matches Keras\.\n", last)
    assert bundle.report.refused == {}


def wait_for(condition, process, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.stderr.read()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_ctrl_c_leaves_nothing(model_file, place):
    with export_process(model_file, place / "made" / "bundle") as process:
        wait_for(lambda: list(place.glob("made/.bundle.*.partial/bundle")), process)
        time.sleep(0.2)  # into the import of TensorFlow
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted: nothing was written\n")
    assert names(place) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.out_of_turn)])
def test_being_told_to_end_leaves_nothing(number, model_file, place):
    with export_process(model_file, place / "bundle") as process:
        wait_for(lambda: list(place.glob(".bundle.*.partial/bundle/saved_model/fingerprint.pb")), process)
        time.sleep(0.3)  # until a process of its own runs the SavedModel, which this one now traces
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert names(place) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the group has no process left
