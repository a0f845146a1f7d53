"""The complete export: files and manifest of a bundle, parity errors, and no files after a failed export."""

import os
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from export_models import build_additive, build_dict_inputs_and_outputs, build_sequential
from handwritten_bundles import write_onnx_bundle
from keras import layers
from small_bundle import list_names

import keras_attn
from keras_attn_export import ExportError, ParityError, UnsupportedModelError, export_model, load_bundle
from keras_attn_export._export import export_model as export_module
from keras_attn_export._format.interruptible_session import run_cases
from keras_attn_export._lowerings import body_inputs
from keras_attn_export._onnx.lazy_values import op
from keras_attn_export._onnxruntime_releases import installed_runtime_supports
from keras_attn_export._thresholds import LARGE_THRESHOLDS


@pytest.mark.fresh_process
def test_bundle_has_its_files_and_manifest(tmp_path):
    steps = []
    bundle = export_model(build_dict_inputs_and_outputs(), tmp_path / "bundle", progress=steps.append)
    files = {file.relative_to(bundle.path).as_posix() for file in bundle.path.rglob("*") if file.is_file()}
    assert {"manifest.json", "model.onnx", "verify.py", "parity/cases.npz", "parity/report.json"} < files
    assert "saved_model/saved_model.pb" in files
    assert set(bundle.manifest["sha256"]) == files - {"manifest.json"}
    small_form = "the operator `Attention`" if installed_runtime_supports(24, ["fused"]) else "plain operators"
    ignored_queries, min_pairs, _ = LARGE_THRESHOLDS["weights"]
    assert bundle.manifest["layers"] == [
        {
            "name": "attention",
            "class": "DotProductAttention",
            "lowering": "adaptive",
            "form": f"{small_form} while (queries - {ignored_queries}) * keys < {min_pairs:,}, else ragged",
            "precision": "float32",
        }
    ]
    assert bundle.manifest["versions"]["keras-attn"] == keras_attn.__version__
    assert len(steps) > 5
    assert sorted(os.listdir(tmp_path)) == ["bundle"]


def test_mismatch_raises_with_every_row_and_keeps_the_old_bundle(tmp_path, monkeypatch):
    """A lowering with a fault leaves one masked key unmasked."""
    model = build_dict_inputs_and_outputs()
    old_bundle = export_model(model, tmp_path / "bundle")
    contents = {file: file.read_bytes() for file in old_bundle.path.rglob("*") if file.is_file()}
    clip = body_inputs._clip_lengths
    monkeypatch.setattr(body_inputs, "_clip_lengths", lambda body, lens: op.Min(clip(body, lens) + 1, body.Tk_scalar))
    with pytest.raises(ParityError, match=r"ONNX output `(weights|context)` .* in case `.*max abs") as caught:
        export_model(model, old_bundle.path, overwrite=True)
    report = caught.value.report
    assert {row.name for row in report.rows if not row.passed} == {"context", "weights"}
    assert sum(not row.passed for row in report.rows) > 10
    assert all(row.passed for row in report.saved_model_rows)
    assert {file: file.read_bytes() for file in old_bundle.path.rglob("*") if file.is_file()} == contents
    assert sorted(os.listdir(tmp_path)) == ["bundle"]
    assert load_bundle(old_bundle.path).manifest == old_bundle.manifest


@pytest.mark.slow
def test_tolerance_decides_and_mismatch_leaves_nothing(tmp_path, monkeypatch):
    model, run = build_sequential(), run_cases

    def run_with_error(*arguments):
        return [{name: array * np.float32(1 + 2e-4) for name, array in case.items()} for case in run(*arguments)]

    monkeypatch.setattr("keras_attn_export._export.float32_file.run_cases", run_with_error)
    with pytest.raises(ParityError, match="outside the tolerance"):
        export_model(model, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())
    bundle = export_model(model, tmp_path / "bundle", tolerance=1e-3)
    assert bundle.manifest["parity"]["tolerance"] == {"relative": 1e-3, "absolute": 1e-4}


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (build_additive, {"in_steps": True}, ExportError, "Export the encoder and the step separately, .* docs/whole"),
        (build_additive, {"samples": {}}, TypeError, "unexpected keyword argument 'samples'"),
        (dict, {}, UnsupportedModelError, "Received: dict"),
        (lambda: "empty.keras", {}, UnsupportedModelError, "Keras cannot load empty.keras"),
    ],
)
def test_invalid_arguments_leave_no_file(model, options, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    zipfile.ZipFile("empty.keras", "w").close()
    with pytest.raises(error, match=message):
        export_model(model(), "bundle", **options)
    assert os.listdir() == ["empty.keras"]


@pytest.mark.slow
def test_exports_in_threads_run_one_after_another(tmp_path, monkeypatch):
    running, counts = [], []

    def write(*_, **__):
        running.append(1)
        time.sleep(0.1)
        counts.append(len(running))
        running.pop()
        raise ExportError("written")

    monkeypatch.setattr(export_module, "_write_bundle", write)
    model = build_additive()
    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(export_model, model, tmp_path / str(number)) for number in range(3)]
    assert [str(run.exception()) for run in runs] == ["written"] * 3
    assert counts == [1, 1, 1]


@pytest.mark.slow
def test_sizes_that_must_be_multiples_are_in_the_manifest(tmp_path):
    x = keras.Input((None, 2), name="x")
    model = keras.Model(x, layers.Add(name="y")([x, layers.UpSampling1D(3)(layers.MaxPooling1D(3)(x))]))
    bundle = export_model(model, tmp_path / "bundle")
    assert bundle.manifest["multiples"] == {"x_length": 3}
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 15, 2)).astype("float32")}
    np.testing.assert_allclose(bundle.run(inputs)["y"], model(inputs["x"]), rtol=1e-6)


def test_unreadable_bundle_replaces_nothing(tmp_path, monkeypatch):
    def write(run, model):
        inputs = {"x": ("float32", ["batch"])}
        write_onnx_bundle(run.folder, "y = Neg(x)", inputs, {"y": inputs["x"]})
        (run.folder / "model.onnx").write_bytes(b"damaged")

    monkeypatch.setattr("keras_attn_export._export.export_model._export", write)
    x = keras.Input((), name="x")
    model = keras.Model(x, -x)
    (tmp_path / "bundle").mkdir()
    with pytest.raises(ExportError, match=r"could not be read: .*is not the file that was exported"):
        export_model(model, tmp_path / "bundle", overwrite=True)
    assert list_names(tmp_path) == ["bundle"]
    assert list_names(tmp_path / "bundle") == []
