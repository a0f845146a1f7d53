"""Models on JAX or torch: traced in a process with TensorFlow, and compared with the outputs of their backend."""

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
from other_backend_models import build_halving_model, build_trained_model, draw_trained_model_inputs
from sigint import enable_interrupts
from tolerances import assert_close

from keras_attn_export import InputError, UnsupportedModelError, export_model, load_bundle, verify_bundle
from keras_attn_export._export.custom_objects import import_custom_objects
from keras_attn_export._export.jax_and_torch import TensorFlowWorker, _worker_environment
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE

WORKER_SCRIPT = Path(__file__).with_name("other_backend_worker.py")
BACKENDS = ("jax", "torch")
TOLERANCE = 1e-5  # backends sum in different orders


def make_environment(backend):
    return build_environment(KERAS_BACKEND=backend, CUDA_VISIBLE_DEVICES="-1")


def start_worker(backend, task, folder, stderr=subprocess.PIPE):
    command = [sys.executable, str(WORKER_SCRIPT), task, str(folder)]
    with enable_interrupts():
        return subprocess.Popen(command, env=make_environment(backend), stderr=stderr, text=True)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Start an export process for each backend, in a folder. They run at the same time, since each takes minutes."""
    workers = {}
    for name in filter(importlib.util.find_spec, BACKENDS):
        folder = tmp_path_factory.mktemp(name)
        with folder.with_suffix(".txt").open("w") as log:
            workers[name] = folder, start_worker(name, "export_all", folder, log)
    yield workers
    for _, process in workers.values():
        process.kill()  # has no effect on a process that has ended
        process.wait()


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in BACKENDS])
def folder(request, processes):
    folder, process = processes[request.param]
    assert process.wait(timeout=900) == 0, folder.with_suffix(".txt").read_text()
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return json.loads((folder / "results.json").read_text())


def assert_outputs_close(bundle, folder, tolerance):
    """Assert that the outputs of a bundle equal the outputs of its model, which the worker saved."""
    inputs, outputs = (dict(np.load(folder / f"{bundle.path.name}_{part}.npz")) for part in ("inputs", "outputs"))
    actual = bundle.run(inputs)
    assert set(actual) == set(outputs)
    for name, array in outputs.items():
        if array.dtype.kind == "f":
            assert_close(actual[name], array, "float32", tolerance=tolerance)


def test_trained_model_equals_its_backend(folder):
    assert verify_bundle(folder / "trained").passed
    bundle = load_bundle(folder / "trained")
    assert_outputs_close(bundle, folder, TOLERANCE)
    dtypes = {spec["name"]: spec["dtype"] for spec in (*bundle.manifest["inputs"], *bundle.manifest["outputs"])}
    assert (dtypes["valid_lens"], dtypes["doubled_lens"]) == ("int64", "int64")  # JAX computes them with 32 bits
    assert {str(case.outputs["doubled_lens"].dtype) for case in load_cases(bundle.path / CASES_FILE)} == {"int64"}
    doubled_lens = bundle.run(inputs := draw_trained_model_inputs())["doubled_lens"]
    np.testing.assert_array_equal(doubled_lens, 2 * inputs["valid_lens"])
    backend = bundle.manifest["backend"]
    assert backend in BACKENDS
    assert bundle.manifest["versions"][backend] == version(backend)
    assert {"tensorflow", "keras", "onnxruntime"} < set(bundle.manifest["versions"])


def test_log_records_of_the_tensorflow_process_arrive(results):
    assert any(line.startswith("additive: adaptive (") for line in results["logged"]), results["logged"]


def test_golden_outputs_equal_backend_outputs_bit_for_bit(results):
    assert len(results["golden outputs equal"]) > 30
    assert all(results["golden outputs equal"])


def test_subclass_exports_with_all_options(folder):
    bundle = load_bundle(folder / "subclass")
    shapes = {spec["name"]: spec["shape"] for spec in bundle.manifest["inputs"]}
    assert shapes["memory_keys"] == ["batch", "memory_keys_length", 8]
    assert [layer["lowering"] for layer in bundle.manifest["layers"]] == ["portable"]
    assert bundle.manifest["precision"] == bundle.report.precision["name"] == "float16"
    # In runs with eight seeds, outputs of the file differed from those of Keras on torch by at most 5e-5 in float32,
    # and by 1e-3 to 2e-2 in float16. The limit of 1e-4 lies between.
    assert bundle.report.precision["float32_max_rel"] < 1e-4 < max(row.max_rel for row in bundle.report.rows)
    assert_outputs_close(bundle, folder, 1e-2)  # float16


def test_half_precision_model_is_cloned_on_its_own_backend(folder):
    report = load_bundle(folder / "half").report
    assert report.float32_clone["policies"] == ["mixed_float16"]
    assert 1e-6 < report.float32_clone["max_rel"] < 0.05


def test_axis_that_tensorflow_cannot_trace_is_static(folder, results):
    assert "or `static_axes={'x_length': 6}`" in results["without a size"]["message"]
    manifest = load_bundle(folder / "looping").manifest
    assert [axis for spec in manifest["inputs"] for axis in spec["shape"]] == ["batch", 6, 5]
    assert "cannot trace it" in manifest["static"]["x_length"]


@pytest.mark.parametrize(
    ("case", "class_name", "message"),
    [
        ("in the script", "UnsupportedModelError", r"`ScriptLayer` is defined in the script .*Move `ScriptLayer` to"),
        ("not on TensorFlow", "UnsupportedModelError", r"cannot be loaded on TensorFlow.*not made for TensorFlow"),
        ("fatal", "ExportError", r"process with TensorFlow, .* ended with exit code 3: the last words$"),
        ("shifted", "ParityError", r"The difference begins in layer `shifted`, which differs between \w+ and Tensor"),
    ],
)
def test_failed_export_leaves_nothing(results, case, class_name, message):
    """In case "shifted", outputs on JAX or torch differ from those on TensorFlow by three times the rounding limit.

    The ONNX file and the SavedModel are both traced on TensorFlow. So the parity check must find the same number of
    failed rows for both.
    """
    error = results[case]
    assert error["class"] == class_name
    assert re.search(message, error["message"]), error["message"]
    assert error["files"] == []
    assert error["num_failed_rows"].get("rows") == error["num_failed_rows"].get("saved_model_rows")


def test_export_changes_no_variable(results):
    assert results["changed"] == []


@pytest.mark.slow
def test_saved_subclass_exports_with_its_weights(tmp_path):
    """Keras loads a saved subclass unbuilt. The export must build it from the samples before it loads the weights."""
    model, samples = build_halving_model()
    expected = model(samples["queries"], memory=samples["memory"])
    model.save(tmp_path / "model.keras")
    bundle = export_model(tmp_path / "model.keras", tmp_path / "bundle", sample_inputs=samples)
    memory = {f"memory_{name}": array for name, array in samples["memory"].items()}
    outputs = bundle.run({"queries": samples["queries"], **memory})
    for name in ("scores", "total"):
        assert_close(outputs[name], keras.ops.convert_to_numpy(expected[name]), "float32", tolerance=TOLERANCE)


# Processes.


@pytest.mark.needs("jax")
def test_command_exports_a_file_on_another_backend(tmp_path):
    """The .keras file is saved on TensorFlow, and the command loads it on JAX."""
    model, file = build_trained_model(), tmp_path / "model.keras"
    model.save(file)
    command = [sys.executable, "-m", "keras_attn_export", "export", str(file), str(tmp_path / "bundle")]
    run = subprocess.run(command, env=make_environment("jax"), capture_output=True, text=True, timeout=300, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert re.search(r"^parity +all \d+ outputs match", run.stdout, flags=re.MULTILINE)
    assert re.search(r"^ +with the outputs of Keras on jax$", run.stdout, flags=re.MULTILINE)
    outputs = load_bundle(tmp_path / "bundle").run(inputs := draw_trained_model_inputs())
    expected = model(list(inputs.values()), training=False)
    assert_close(outputs["weights"], keras.ops.convert_to_numpy(expected["weights"]), "float32", tolerance=TOLERANCE)


def list_processes(field, value):
    """Return sorted ids of the running processes, without zombies, with a value in a field of /proc/PID/stat."""
    pids = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process may end between listing and reading
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[field]) == value and fields[0] not in "ZX":
                pids.append(int(status.parent.name))
    return sorted(pids)


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


PARENT, GROUP = 1, 2  # fields of /proc/PID/stat after the name


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc; CI runs Linux")
@pytest.mark.parametrize(
    ("backend", "signal_number"),
    [
        pytest.param("jax", signal.SIGINT, marks=pytest.mark.needs("jax")),
        pytest.param("torch", signal.SIGKILL, marks=pytest.mark.needs("torch")),
    ],
)
def test_stopped_export_ends_its_tensorflow_process(backend, signal_number, tmp_path):
    process = start_worker(backend, "hang", tmp_path)
    wait_for((tmp_path / "hangs").exists, 100)
    *_, tensorflow_pid = list_processes(PARENT, process.pid)
    process.send_signal(signal_number)
    _, errors = process.communicate(timeout=100)
    if signal_number == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        assert not list((tmp_path / "stopped").iterdir())
    # The TensorFlow process leads a process group of its own, with the same id
    wait_for(lambda: not list_processes(GROUP, tensorflow_pid), 10)


def test_class_that_cannot_be_imported_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"`Layer` cannot be imported from `no_such_module` .*No module"):
        import_custom_objects({"tests>Layer": ("no_such_module", "Layer")})


class PrintingTask:
    def __reduce__(self):
        raise_statement = "from keras_attn_export._errors import InputError; raise InputError('no task')"
        return exec, (f"print('anything', flush=True); {raise_statement}",)


def test_printed_text_does_not_mix_with_replies_of_the_process(tmp_path):
    with TensorFlowWorker(tmp_path) as process, pytest.raises(InputError, match="no task"):
        process.run_task(PrintingTask(), print)


def test_tensorflow_process_has_its_own_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("XLA_FLAGS", "--only_jax_knows_it")
    monkeypatch.setenv("MINE", "kept")
    variables = _worker_environment(tmp_path)
    assert [variables[name] for name in ("KERAS_BACKEND", "TMPDIR", "MINE")] == ["tensorflow", str(tmp_path), "kept"]
    assert "XLA_FLAGS" not in variables
    assert os.environ["XLA_FLAGS"] == "--only_jax_knows_it"
