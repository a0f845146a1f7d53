"""The processes of an export from JAX or torch: as a command, and interrupted.

In a file apart from test_other_backends.py, which mostly waits for processes of its own, so that both run at once.
"""

import json
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import keras
import pytest
from other_backend_models import inputs_of_trained, trained_model
from other_backend_processes import ACROSS, environment, start
from tolerances import assert_close

from keras_attn_export import load_bundle, verify_bundle


@pytest.mark.needs("jax")
def test_the_command_takes_a_file_of_any_backend(tmp_path):
    """Here the file is written on TensorFlow, and JAX is where it is read."""
    model, file = trained_model(), tmp_path / "model.keras"
    model.save(file)
    command = [sys.executable, "-m", "keras_attn_export", "export", str(file), str(tmp_path / "bundle")]
    done = subprocess.run(command, env=environment("jax"), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^parity +all \d+ comparisons match", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^ +with the outputs of Keras on jax$", done.stdout, flags=re.MULTILINE)
    assert f"jax {version('jax')}" in done.stdout
    assert verify_bundle(tmp_path / "bundle").passed
    outputs = load_bundle(tmp_path / "bundle").run(inputs := inputs_of_trained())
    expected = model(list(inputs.values()), training=False)
    assert_close(outputs["weights"], keras.ops.convert_to_numpy(expected["weights"]), "float32", tolerance=ACROSS)


# ------------------------------------------------------------- being interrupted


def living(group):
    """Return the processes of a group that still run; one that has ended may not have been reaped yet."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(status.parent.name))
    return found


def wait_for(condition, seconds=100):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    return None


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc; CI runs Linux")


@needs_proc
def test_ctrl_c_ends_the_other_process_and_leaves_nothing(backend, tmp_path):
    process = start(backend, "interrupt", tmp_path)
    _, errors = process.communicate(timeout=200)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    *_, group = json.loads((tmp_path / "found.json").read_text())
    assert wait_for(lambda: not living(group), 5)
    assert not list((tmp_path / "stopped").iterdir())


@needs_proc
def test_the_other_process_ends_when_the_first_is_killed(backend, tmp_path):
    process = start(backend, "hang", tmp_path)
    found = tmp_path / "found.json"
    wait_for(lambda: found.exists() and found.read_text())
    *_, group = json.loads(found.read_text())
    assert living(group)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert wait_for(lambda: not living(group), 10)
