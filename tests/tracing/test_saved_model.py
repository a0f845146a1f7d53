"""SavedModels: equal files in every process; the process that runs them reports errors and ends with its parent."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef

from keras_attn_export import ExportError
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.names import Case
from keras_attn_export._signature.signature import build_signature
from keras_attn_export._tracing.saved_model import write_saved_model
from keras_attn_export._tracing.saved_model_worker import SavedModelRun


@pytest.mark.slow
def test_saved_model_is_the_same_in_each_process(tmp_path):
    sizes = [*range(2, 10)]
    model = keras.Sequential([keras.Input((1,)), *(layers.Dense(size, use_bias=False) for size in sizes)])
    write_saved_model(build_signature(model), tmp_path)
    shapes = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables")).get_variable_to_shape_map()
    # each variable is saved once, although Keras lists it twice
    assert sorted(shape[-1] for shape in shapes.values() if shape) == sizes
    loaded = tf.saved_model.load(str(tmp_path))
    for variables in (loaded._all_variables, loaded.trainable_variables):
        assert [variable.shape[-1] for variable in variables] == sizes
    fingerprint = FingerprintDef.FromString((tmp_path / "fingerprint.pb").read_bytes())
    assert getattr(fingerprint, "uuid", str(fingerprint.saved_model_checksum)) == str(fingerprint.saved_model_checksum)


def test_hyphens_in_names_become_underscores(tmp_path):
    x = keras.Input((2,), name="Input-Token")
    write_saved_model(build_signature(keras.Model(x, layers.Dense(1, name="out-1")(x))), tmp_path)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert [*serve.structured_input_signature[1]] == ["Input_Token"]
    assert serve(Input_Token=tf.ones((3, 2)))["out-1"].shape == (3, 1)


# starts a run, prints its process id, and waits to be killed
PARENT = """
import sys, time
from pathlib import Path
from keras_attn_export._tracing.saved_model_worker import SavedModelRun
run = SavedModelRun()
run.begin(*map(Path, sys.argv[1:]))
print(run._process.pid, flush=True)
time.sleep(600)
"""


FILES = ("model", "cases.npz", "results.npz")


def is_running(pid):
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return True
    return False


def has_reader(pipe):
    with contextlib.suppress(OSError):  # no reader yet
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # stays open, so that the reader waits
        return True
    return False


def becomes_true(condition):
    """Return True if a condition becomes true within a minute."""
    deadline = time.monotonic() + 60
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return is_met


def save_function(folder, function, inputs):
    """Write a function of arrays with these shapes and dtypes as a SavedModel."""
    specs = {name: tf.TensorSpec([None, *array.shape[1:]], array.dtype, name=name) for name, array in inputs.items()}
    concrete = tf.function(function).get_concrete_function(**specs)
    tf.saved_model.save(tf.Module(), str(folder / "model"), {"serving_default": concrete})


@pytest.mark.slow
def test_failed_run_is_an_error_and_the_process_ends_with_the_block(tmp_path):
    with SavedModelRun() as run:
        run.begin(tmp_path / "absent", *(tmp_path / name for name in FILES[1:]))
        with pytest.raises(ExportError, match=r"does not run in a fresh process: .*absent"):
            run.outputs()
    with SavedModelRun() as run:
        process = run._process
    assert process.returncode is not None


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name; CI runs Linux")
def test_busy_process_ends_with_its_killed_parent(tmp_path):
    save_function(tmp_path, lambda x: {"y": 2 * x}, {"x": np.ones(3)})
    paths = [str(tmp_path / name) for name in FILES]
    os.mkfifo(paths[1])  # no process writes to it, so that the reader waits
    with subprocess.Popen([sys.executable, "-c", PARENT, *paths], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert becomes_true(lambda: has_reader(paths[1]))
        parent.send_signal(signal.SIGKILL)
    assert becomes_true(lambda: not is_running(pid))


@pytest.mark.slow
def test_complex_outputs_are_returned(tmp_path):
    save_function(tmp_path, lambda x: {"y": tf.complex(x, 2 * x)}, arrays := {"x": np.array([[1, 2]], "float32")})
    save_cases(tmp_path / "cases.npz", [Case("one", arrays, {})])
    with SavedModelRun() as run:
        run.begin(*(tmp_path / name for name in FILES))
        (outputs,) = run.outputs()
    assert outputs["y"].tolist() == [[1 + 2j, 2 + 4j]]
