"""`keras-attn export` as a shell starts it: what arrives on its streams, and signals."""

import os
import re
import signal
import subprocess
import sys
import time

import keras
import pytest
from bundles import assert_one_line, names

from keras_attn_export import load_bundle
from keras_attn_export._cli.describe import describe

pytest_plugins = ("bundle_fixtures", "command_fixtures")


def export_process(model, bundle, cwd):
    """Start `keras-attn export` as a shell would: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "keras_attn_export", "export", str(model), str(bundle)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=cwd,
    )


def test_a_successful_export_is_silent_on_stderr(model_file, tmp_path):
    with export_process(model_file, tmp_path / "bundle", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    described, _, last = out.partition("\n\n")
    assert described == describe(load_bundle(tmp_path / "bundle"))
    assert re.fullmatch(rf"Exported to {tmp_path / 'bundle'} in \d+ s: it matches Keras\.\n", last)
    assert load_bundle(tmp_path / "bundle").report.refused == {}


def test_a_failing_export_says_one_line_on_stderr(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x + 1)])
    model.save(tmp_path / "lambda.keras")
    with export_process(tmp_path / "lambda.keras", tmp_path / "bundle", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert_one_line(err, f"error: Keras cannot load {tmp_path / 'lambda.keras'}: ")
    assert "Lambda" in err
    assert names(tmp_path) == ["lambda.keras"]


def wait_for(condition, process, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.stderr.read()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_ctrl_c_leaves_nothing(model_file, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    with export_process(model_file, place / "made" / "bundle", cwd=place) as process:
        wait_for(lambda: list(place.glob("made/.bundle.*.partial/bundle")), process)
        time.sleep(0.2)  # into the import of TensorFlow
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted: nothing was written\n")
    assert names(place) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.out_of_turn)])
def test_being_told_to_end_leaves_nothing(number, model_file, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    with export_process(model_file, place / "bundle", cwd=place) as process:
        wait_for(lambda: list(place.glob(".bundle.*.partial/bundle/saved_model/fingerprint.pb")), process)
        time.sleep(0.3)  # until a process of its own runs the SavedModel, which this one now traces
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert names(place) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the group has no process left
