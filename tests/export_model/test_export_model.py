"""The export as a whole: what it writes, and that it writes nothing when something is wrong."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import additive, dict_inputs_and_outputs, sequential
from keras import layers

import keras_attn
from keras_attn_export import (
    BundleError,
    ExportError,
    InputError,
    ParityError,
    ProviderError,
    UnsupportedModelError,
    export_model,
    load_bundle,
)
from keras_attn_export._export import export as export_module
from keras_attn_export._lowerings import text
from keras_attn_export._options import runs_here
from keras_attn_export._standalone import verify
from keras_attn_export._thresholds import LARGE


@pytest.mark.smoke
@pytest.mark.fresh_process
def test_what_a_bundle_holds(tmp_path):
    steps = []
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", progress=steps.append)
    files = {file.relative_to(bundle.path).as_posix() for file in bundle.path.rglob("*") if file.is_file()}
    assert {"manifest.json", "model.onnx", "verify.py", "parity/cases.npz", "parity/report.json"} < files
    assert "saved_model/saved_model.pb" in files
    assert set(bundle.manifest["sha256"]) == files - {"manifest.json"}
    small = "the operator `Attention`" if runs_here(24, ["fused"]) else "plain operators"
    least = LARGE["weights"]
    assert bundle.manifest["layers"] == [
        {
            "name": "attention",
            "class": "DotProductAttention",
            "lowering": "adaptive",
            "form": f"{small} while (queries - {least.queries}) * keys < {least.pairs:,}, else ragged",
            "precision": "float32",
        }
    ]
    assert bundle.manifest["versions"]["keras-attn"] == keras_attn.__version__
    assert len(steps) > 5
    assert sorted(os.listdir(tmp_path)) == ["bundle"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_model(dict_inputs_and_outputs(), tmp_path_factory.mktemp("exported") / "bundle")


def test_the_saved_model_has_the_same_names(exported):
    loaded = tf.saved_model.load(str(exported.path / "saved_model"))
    serve = loaded.signatures["serving_default"]
    assert set(serve.structured_input_signature[1]) == {spec["name"] for spec in exported.manifest["inputs"]}
    assert set(serve.structured_outputs) == {spec["name"] for spec in exported.manifest["outputs"]}
    rng = np.random.default_rng(0)
    shapes = {"queries": (2, 3, 6), "keys": (2, 4, 6), "values": (2, 4, 5)}
    inputs = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    inputs["valid_lens"] = np.array([3, 0], "int32")
    theirs = serve(**{name: tf.constant(array) for name, array in inputs.items()})
    for name, array in exported.run(inputs).items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-6)


def test_a_keras_file_exports(tmp_path):
    sequential().save(tmp_path / "model.keras")
    assert export_model(tmp_path / "model.keras", tmp_path / "deep" / "er" / "bundle").report.passed


@pytest.fixture
def wrong_lengths(monkeypatch):
    """A lowering that lets one key too many take part, as a defect in a converter would."""
    one_more = "{name}_and_one = Add ({name}_long, one)\n    {name} = Clip ({name}_and_one,"
    monkeypatch.setattr(text, "_CLIPPED", text._CLIPPED.replace("{name} = Clip ({name}_long,", one_more))


@pytest.mark.smoke
def test_a_mismatch_raises_with_every_row_and_leaves_the_old_bundle_whole(exported, wrong_lengths, tmp_path):
    old = shutil.copytree(exported.path, tmp_path / "bundle")
    before = {file: file.read_bytes() for file in old.rglob("*") if file.is_file()}
    model = dict_inputs_and_outputs()
    with pytest.raises(ParityError, match=r"ONNX output `(weights|context)` .* in case `.*max abs") as caught:
        export_model(model, old, overwrite=True)
    report = caught.value.report
    assert {row.name for row in report.rows if not row.passed} == {"context", "weights"}
    assert sum(not row.passed for row in report.rows) > 10
    assert all(row.passed for row in report.saved_model_rows)
    assert {file: file.read_bytes() for file in old.rglob("*") if file.is_file()} == before
    assert sorted(os.listdir(tmp_path)) == ["bundle"]
    assert load_bundle(old).manifest == exported.manifest


def test_tolerance_decides_and_a_mismatch_leaves_nothing(tmp_path, monkeypatch):
    model, run = sequential(), verify.run_cases

    def off(*arguments):
        return [{name: array * np.float32(1 + 2e-4) for name, array in case.items()} for case in run(*arguments)]

    monkeypatch.setattr("keras_attn_export._standalone.verify.run_cases", off)
    with pytest.raises(ParityError, match="outside the tolerance"):
        export_model(model, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())
    bundle = export_model(model, tmp_path / "bundle", tolerance=1e-3)
    assert bundle.manifest["parity"]["tolerance"] == {"relative": 1e-3, "absolute": 1e-4}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"opset": 25}, ExportError, "`opset` must be"),
        ({"lowering": "fused", "opset": 18}, ExportError, "`lowering='fused'` needs opset 24"),
        ({"lowering": "fast"}, ExportError, "`lowering` must be one of"),
        ({"precision": "int4"}, ExportError, "`precision` must be one of"),
        ({"provider": "tpu"}, ExportError, "`provider` must be one of"),
        ({"provider": "cuda"}, ProviderError, "no CUDAExecutionProvider"),
        ({"tolerance": -1}, ExportError, "`tolerance` must be"),
        ({"sample_inputs": {"nothing": np.ones(2)}}, InputError, "which the model does not take"),
    ],
)
def test_wrong_arguments_leave_nothing(options, error, message, tmp_path):
    model = additive()
    with pytest.raises(error, match=message):
        export_model(model, tmp_path / "bundle", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "missing.keras", "no model file"),
        (b"", "model.h5", "not a `.keras` file"),
        (b"not a zip", "model.keras", "Keras cannot load"),
    ],
)
def test_files_that_are_no_model(content, name, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UnsupportedModelError, match=message):
        export_model(tmp_path / name, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_something_that_is_no_model(tmp_path):
    with pytest.raises(UnsupportedModelError, match="Received: dict"):
        export_model({}, tmp_path / "bundle")


def test_a_lambda_is_not_loaded_from_a_strangers_file(tmp_path):
    x = keras.Input((3,), name="x")
    keras.Model(x, keras.layers.Lambda(lambda y: y + 1)(x)).save(tmp_path / "model.keras")
    with pytest.raises(UnsupportedModelError, match="Keras cannot load"):
        export_model(tmp_path / "model.keras", tmp_path / "bundle")


def test_a_bundle_is_not_replaced_unasked(exported, tmp_path):
    path, model = shutil.copytree(exported.path, tmp_path / "bundle"), sequential()
    with pytest.raises(BundleError, match="already exists"):
        export_model(model, path)
    assert load_bundle(path).manifest == exported.manifest
    assert export_model(model, path, overwrite=True).manifest["outputs"] != exported.manifest["outputs"]
    assert sorted(os.listdir(tmp_path)) == ["bundle"]


def test_the_report_is_on_disk(exported):
    content = json.loads((exported.path / "parity" / "report.json").read_text())
    assert content["passed"] is True
    assert len(content["rows"]) == 2 * exported.manifest["parity"]["cases"]
    assert {"name", "case", "shape", "dtype", "max_abs", "max_rel", "tolerance", "passed"} <= set(content["rows"][0])


def test_exports_in_threads_take_turns(tmp_path, monkeypatch):
    at_work, together = [], []

    def write(*_, **__):
        at_work.append(1)
        time.sleep(0.1)
        together.append(len(at_work))
        at_work.pop()
        raise ExportError("written")

    monkeypatch.setattr(export_module, "_write_bundle", write)
    model = additive()
    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(export_model, model, tmp_path / str(number)) for number in range(3)]
    assert [str(run.exception()) for run in runs] == ["written"] * 3
    assert together == [1, 1, 1]


def test_an_argument_that_is_not_there_is_refused_and_one_that_went_names_what_there_is_instead(tmp_path):
    model = additive()
    with pytest.raises(ExportError, match=r"Export the encoder and the step by themselves, .* docs/whole-answers\.md"):
        export_model(model, tmp_path / "bundle", in_steps=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'samples'"):
        export_model(model, tmp_path / "bundle", samples={})
    assert list(tmp_path.iterdir()) == []


def test_strict_writes_nothing_where_a_warning_would_be(tmp_path):
    x, unused = keras.Input((4,), name="x"), keras.Input((4,), name="unused")
    model = keras.Model([x, unused], layers.Dense(2, name="y")(x))
    with pytest.raises(
        ParityError, match=r"All outputs match, but `strict` .* Input `unused` moves no output\.$"
    ) as caught:
        export_model(model, tmp_path / "bundle", strict=True)
    assert caught.value.report.passed
    assert caught.value.report.warnings == ("Input `unused` moves no output.",)
    assert list(tmp_path.iterdir()) == []


def test_sizes_that_must_be_multiples_are_written_down_and_asked_for(tmp_path):
    x = keras.Input((None, 2), name="x")
    model = keras.Model(x, layers.Add(name="y")([x, layers.UpSampling1D(3)(layers.MaxPooling1D(3)(x))]))
    bundle = export_model(model, tmp_path / "bundle")
    assert bundle.manifest["multiples"] == {"x_length": 3}
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 15, 2)).astype("float32")}
    np.testing.assert_allclose(bundle.run(inputs)["y"], model(inputs["x"]), rtol=1e-6)
    with pytest.raises(InputError, match=r"where `x_length` is a multiple of 3\. Received: \(2, 14, 2\)\.$"):
        bundle.run({"x": inputs["x"][:, :14]})
