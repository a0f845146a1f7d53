"""Models that live on JAX or torch: traced in a process with TensorFlow, and compared with their own backend."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np
import pytest
from environments import build_environment
from other_backend_models import build_scaled_model, build_trained_model, draw_trained_model_inputs
from sigint import enable_interrupts
from tolerances import assert_close

from keras_attn_export import InputError, UnsupportedModelError, export_model, load_bundle, verify_bundle
from keras_attn_export._export.custom_objects import import_custom_objects
from keras_attn_export._export.jax_and_torch import TensorFlowWorker, _worker_environment
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES

WORKER = Path(__file__).with_name("other_backend_worker.py")
BACKENDS = ("jax", "torch")
ACROSS = 1e-5  # each backend adds up in an order of its own


def environment(backend):
    return build_environment(KERAS_BACKEND=backend, CUDA_VISIBLE_DEVICES="-1")


def start(backend, what, folder, stderr=subprocess.PIPE):
    command = [sys.executable, str(WORKER), what, str(folder)]
    with enable_interrupts():
        return subprocess.Popen(command, env=environment(backend), stderr=stderr, text=True)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """By backend, where a process exports everything, and the process: both at once, as each takes minutes."""
    found = {}
    for name in filter(importlib.util.find_spec, BACKENDS):
        folder = tmp_path_factory.mktemp(name)
        with folder.with_suffix(".txt").open("w") as said:
            found[name] = folder, start(name, "everything", folder, said)
    yield found
    for _, process in found.values():
        process.kill()  # does nothing to one that has ended
        process.wait()


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in BACKENDS])
def folder(request, processes):
    folder, process = processes[request.param]
    assert process.wait(timeout=900) == 0, folder.with_suffix(".txt").read_text()
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return json.loads((folder / "found.json").read_text())


def assert_outputs_close(bundle, folder, tolerance):
    """Compare the outputs of a bundle with those of its model, which the worker kept."""
    inputs, outputs = (dict(np.load(folder / f"{bundle.path.name}_{part}.npz")) for part in ("inputs", "outputs"))
    found = bundle.run(inputs)
    assert set(found) == set(outputs)
    for name, array in outputs.items():
        if array.dtype.kind == "f":
            assert_close(found[name], array, "float32", tolerance=tolerance)


def test_trained_model_equals_its_backend(folder):
    assert verify_bundle(folder / "trained").passed
    bundle = load_bundle(folder / "trained")
    assert_outputs_close(bundle, folder, ACROSS)
    dtypes = {spec["name"]: spec["dtype"] for spec in (*bundle.manifest["inputs"], *bundle.manifest["outputs"])}
    assert (dtypes["valid_lens"], dtypes["twice"]) == ("int64", "int64")  # which JAX computes in 32 bits
    assert {str(case.outputs["twice"].dtype) for case in load_cases(bundle.path / CASES)} == {"int64"}
    twice = bundle.run(inputs := draw_trained_model_inputs())["twice"]
    np.testing.assert_array_equal(twice, 2 * inputs["valid_lens"])
    backend = bundle.manifest["backend"]
    assert backend in BACKENDS
    assert bundle.manifest["versions"][backend] == version(backend)
    assert {"tensorflow", "keras", "onnxruntime"} < set(bundle.manifest["versions"])


def test_log_records_of_the_tensorflow_process_arrive(found):
    assert any(line.startswith("additive: adaptive (") for line in found["logged"]), found["logged"]


def test_golden_outputs_equal_those_of_the_backend_in_every_bit(found):
    assert len(found["golden is ours"]) > 30
    assert all(found["golden is ours"])


def test_subclass_exports_with_all_options(folder):
    bundle = load_bundle(folder / "subclass")
    shapes = {spec["name"]: spec["shape"] for spec in bundle.manifest["inputs"]}
    assert shapes["memory_keys"] == ["batch", "memory_keys_length", 8]
    assert [layer["lowering"] for layer in bundle.manifest["layers"]] == ["portable"]
    assert bundle.manifest["precision"] == bundle.report.precision["name"] == "float16"
    # Before the conversion a torch model of this kind was up to 5e-5 away over eight seeds, in float16 1e-3 to 2e-2.
    assert bundle.report.precision["float32_max_rel"] < 1e-4 < max(row.max_rel for row in bundle.report.rows)
    assert_outputs_close(bundle, folder, 1e-2)  # half precision


def test_half_precision_model_is_cloned_on_its_own_backend(folder):
    report = load_bundle(folder / "half").report
    assert report.float32_clone["policies"] == ["mixed_float16"]
    assert 1e-6 < report.float32_clone["max_rel"] < 0.05


def test_axis_that_tensorflow_cannot_trace_is_static(folder, found):
    assert "or `static_axes={'x_length': 6}`" in found["without a size"]["message"]
    manifest = load_bundle(folder / "looping").manifest
    assert [axis for spec in manifest["inputs"] for axis in spec["shape"]] == ["batch", 6, 5]
    assert "cannot trace it" in manifest["static"]["x_length"]


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("in the script", "UnsupportedModelError", r"`InTheScript` is defined in the script .*move `InTheScript` to"),
        ("not on TensorFlow", "UnsupportedModelError", r"cannot be loaded on TensorFlow.*not made for TensorFlow"),
        ("fatal", "ExportError", r"process with TensorFlow, .* ended with exit code 3: the last words$"),
        ("shifted", "ParityError", r"The difference begins in layer `shifted`, which differs between \w+ and Tensor"),
    ],
)
def test_failed_export_leaves_nothing(found, what, error, message):
    """`shifted` differs by three limits between the backend and TensorFlow, of which both files are made."""
    raised = found[what]
    assert raised["class"] == error
    assert re.search(message, raised["message"]), raised["message"]
    assert raised["left"] == []
    assert raised["failed"].get("rows") == raised["failed"].get("saved_model_rows")


def test_export_changes_no_variable(found):
    assert found["changed"] == []


@pytest.mark.slow
def test_saved_subclass_exports_with_its_weights(tmp_path):
    """On TensorFlow too: Keras cannot build it before it has seen the samples, and loads no weights until then."""
    model, samples = build_scaled_model()
    wanted = model(samples["queries"], memory=samples["memory"])
    model.save(tmp_path / "model.keras")
    bundle = export_model(tmp_path / "model.keras", tmp_path / "bundle", sample_inputs=samples)
    memory = {f"memory_{name}": each for name, each in samples["memory"].items()}
    outputs = bundle.run({"queries": samples["queries"], **memory})
    for name in ("scores", "total"):
        assert_close(outputs[name], keras.ops.convert_to_numpy(wanted[name]), "float32", tolerance=ACROSS)


# Processes.


@pytest.mark.needs("jax")
def test_command_exports_a_file_on_another_backend(tmp_path):
    """Here the file is written on TensorFlow, and JAX is where it is read."""
    model, file = build_trained_model(), tmp_path / "model.keras"
    model.save(file)
    command = [sys.executable, "-m", "keras_attn_export", "export", str(file), str(tmp_path / "bundle")]
    done = subprocess.run(command, env=environment("jax"), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^parity +all \d+ outputs match", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^ +with the outputs of Keras on jax$", done.stdout, flags=re.MULTILINE)
    outputs = load_bundle(tmp_path / "bundle").run(inputs := draw_trained_model_inputs())
    expected = model(list(inputs.values()), training=False)
    assert_close(outputs["weights"], keras.ops.convert_to_numpy(expected["weights"]), "float32", tolerance=ACROSS)


def running(field, value):
    """Return the processes that run, sorted, of which a field of /proc/PID/stat has a value; zombies have ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # if the process has ended meanwhile
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[field]) == value and fields[0] not in "ZX":
                found.append(int(status.parent.name))
    return sorted(found)


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


PARENT, GROUP = 1, 2  # fields of /proc/PID/stat behind the name


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc; CI runs Linux")
@pytest.mark.parametrize(
    ("backend", "number"),
    [
        pytest.param("jax", signal.SIGINT, marks=pytest.mark.needs("jax")),
        pytest.param("torch", signal.SIGKILL, marks=pytest.mark.needs("torch")),
    ],
)
def test_stopped_export_ends_its_tensorflow_process(backend, number, tmp_path):
    process = start(backend, "hang", tmp_path)
    wait_for((tmp_path / "hangs").exists, 100)
    *_, group = running(PARENT, process.pid)
    process.send_signal(number)
    _, errors = process.communicate(timeout=100)
    if number == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        assert not list((tmp_path / "stopped").iterdir())
    wait_for(lambda: not running(GROUP, group), 10)


def test_class_that_the_process_cannot_import_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"`Layer` cannot be imported from `no_such_module` .*No module"):
        import_custom_objects({"tests>Layer": ("no_such_module", "Layer")})


class Loud:
    def __reduce__(self):
        refusal = "from keras_attn_export._errors import InputError; raise InputError('no task')"
        return exec, (f"print('anything', flush=True); {refusal}",)


def test_printed_text_does_not_mix_with_replies_of_the_process(tmp_path):
    with TensorFlowWorker(tmp_path) as process, pytest.raises(InputError, match="no task"):
        process.run_task(Loud(), print)


def test_tensorflow_process_has_its_own_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("XLA_FLAGS", "--only_jax_knows_it")
    monkeypatch.setenv("MINE", "kept")
    there = _worker_environment(tmp_path)
    assert (there["KERAS_BACKEND"], there["TMPDIR"], there["MINE"]) == ("tensorflow", str(tmp_path), "kept")
    assert "XLA_FLAGS" not in there
    assert os.environ["XLA_FLAGS"] == "--only_jax_knows_it"
