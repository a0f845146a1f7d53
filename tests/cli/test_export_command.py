"""`keras-attn export`: options, refused arguments, and failures without remaining files."""

import importlib
import json
import logging
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from other_backend_models import Running
from small_bundle import assert_one_line, list_names, read_manifest, run_command

from keras_attn import AdditiveAttention
from keras_attn_export import load_bundle, verify_bundle
from keras_attn_export._cli.bundle_text import describe_bundle


def test_export_with_options_prints_json_only(bundle, model_file, samples, tmp_path, succeeds):
    options = ("--opset", 20, "--target", "1.24", "--provider", "CPUExecutionProvider", "--overwrite", "--json")
    options += ("--no-saved-model",)
    out = succeeds("export", model_file, bundle, "--samples", samples, *options)
    content = json.loads(out)
    assert content["bundle"] == str(bundle)
    assert content["manifest"] == read_manifest(bundle)
    assert content["manifest"]["opset"] == 20
    assert content["manifest"]["lowest_onnxruntime"] == "1.19"
    assert content["report"]["provider"] == "cpu"
    assert {"samples", "base"} <= {row["case"] for row in content["report"]["rows"]}
    assert content["report"]["refused"] == {}
    assert content["report"]["saved_model_rows"]
    assert not (bundle / "saved_model").exists()
    assert verify_bundle(bundle).passed
    assert list_names(tmp_path) == ["bundle", "samples.npz"]


@pytest.mark.slow
def test_export_process_prints_the_bundle_and_nothing_on_stderr(model_file, tmp_path):
    result = run_command(sys.executable, "-m", "keras_attn_export", "export", model_file, tmp_path / "bundle")
    assert (result.returncode, result.stderr) == (0, "")
    description, _, last_line = result.stdout.partition("\n\n")
    bundle = load_bundle(tmp_path / "bundle")
    assert description.splitlines() == describe_bundle(bundle)
    assert last_line == f"Exported to {bundle.path}: it matches Keras. 1 of 1 attention layers recognised.\n"


def test_debug_shows_how_each_attention_layer_was_lowered(tmp_path, call, caplog):
    x = keras.Input((3, 4), name="x")
    additive, float64_layer = AdditiveAttention(2, name="ours"), keras.layers.Attention(name="wide", dtype="float64")
    keras.Model(x, float64_layer([additive(x, x, x), x])).save(tmp_path / "model.keras")
    code, out, err = call("export", tmp_path / "model.keras", tmp_path / "bundle", "--lowering", "fused", "--debug")
    assert (code, out.splitlines()[-1].partition("Keras. ")[2]) == (0, "1 of 2 attention layers recognised.")
    lines = [
        "ours: portable (plain operators, because the operator `Attention` computes a softmax of dot products only)",
        "wide: plain operators, because it computes in float64",
    ]
    assert {f"debug: {line}" for line in lines} <= set(err.splitlines())
    records = [record for record in caplog.records if record.name.startswith("keras_attn_export")]
    assert records == [], "handlers of the root logger would print the lines again"
    logger = logging.getLogger("keras_attn_export")
    assert (logger.level, logger.propagate) == (logging.NOTSET, True), "the command leaves the logger as it was"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nowhere.keras new", "There is no model file at nowhere.keras."),
        ("MODEL new --lowering fused --opset 18", "`lowering='fused'` needs opset 24"),
        ("MODEL new --samples x.npz", "`sample_inputs` names ['x'], which the model does not take"),
        ("MODEL new --static length=3", "`static_axes` names ['length']. The dynamic axes of this model are ["),
        ("MODEL old", "old already exists. Pass overwrite=True (--overwrite) to replace it."),
        ("odd.keras new --samples x.npz", "Op `NextAfter` of "),
    ],
)
def test_export_refuses_bad_arguments_and_writes_nothing(model_file, tmp_path, fails, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    np.savez("x.npz", x=np.array([4, 5]))
    x = keras.Input((), name="x")
    keras.Model(x, keras.ops.nextafter(x, x)).save("odd.keras")
    fails("export", *(model_file if word == "MODEL" else word for word in arguments.split()), message=message)
    assert list_names(tmp_path) == ["odd.keras", "old", "x.npz"]


OWN_MODULES = {
    "own_layers": """
import keras

@keras.saving.register_keras_serializable("own")
class Doubled(keras.layers.Layer):
    def call(self, x):
        return 2 * x

@keras.saving.register_keras_serializable("own")
class Plain(keras.layers.Layer):  # a file calls it `own>Plain`
    def call(self, x):
        return x + 100
""",
    "more_layers": """
import keras

class Plain(keras.layers.Layer):
    def call(self, x):
        return x + 1
""",
}


@pytest.fixture
def own_model(tmp_path, monkeypatch):
    """A model file with the layers of two modules that are not imported."""
    modules = OWN_MODULES | {"same_name": OWN_MODULES["more_layers"]}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # an installed command has no "" in its path
    registered = dict(keras.saving.get_custom_objects())
    sys.path.insert(0, str(tmp_path))
    own_layers, more_layers = importlib.import_module("own_layers"), importlib.import_module("more_layers")
    x = keras.Input((3,), name="x")
    keras.Model(x, {"y": more_layers.Plain()(own_layers.Doubled()(x))}).save(tmp_path / "model.keras")

    def forget():
        for name in modules:
            sys.modules.pop(name, None)
        keras.saving.get_custom_objects().clear()
        keras.saving.get_custom_objects().update(registered)

    forget()
    sys.path.remove(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield "model.keras"
    forget()


def test_export_names_the_class_of_a_module_that_is_not_imported(own_model, fails):
    for modules, message in (
        ([], "does not know the class `Doubled` of module `own_layers`"),
        (["no_such_module"], "error: Cannot import `no_such_module` (ModuleNotFoundError: "),
        (["own_layers"], "does not know the class `Plain` of module `more_layers`"),
        (["own_layers", "more_layers", "same_name"], "`more_layers` and `same_name` both define a layer"),
    ):
        fails("export", own_model, "bundle", *build_import_options(modules), message=message)
        assert not Path("bundle").exists()


def test_export_imports_modules_and_keeps_their_output_out_of_json(own_model, call):
    for name, text in OWN_MODULES.items():
        printing_text = text.replace("return", "print('a call'); return")
        Path(f"{name}.py").write_text(f"{printing_text}\nprint('an import')\n")
    np.savez("samples.npz", x=np.ones((2, 3), "float32"))
    modules = build_import_options(["own_layers", "more_layers"])
    export_run = call("export", own_model, "bundle", *modules, "--strict", "--json")
    for name in OWN_MODULES:
        sys.modules.pop(name, None)
    verify_run = call("verify", "bundle", "--samples", "samples.npz", "--model", own_model, *modules, "--json")
    for code, out, err in export_run, verify_run:
        assert code == 0, err
        content = json.loads(out)
        assert content.get("report", content)["passed"]
        assert {"an import", "a call"} <= set(err.splitlines())
    y = load_bundle("bundle").run({"x": np.ones((1, 3), "float32")})["y"]
    np.testing.assert_array_equal(y, np.full((1, 3), 3))


def build_import_options(modules):
    return [word for name in modules for word in ("--import", name)]


@pytest.mark.slow
def test_export_names_axes_that_become_static(tmp_path, call):
    x, y = keras.Input((None, 3), name="x"), keras.Input((None, 2), name="y")
    keras.Model([x, y], [Running()(x), keras.ops.relu(y)]).save(tmp_path / "model.keras")
    np.savez(tmp_path / "samples.npz", x=np.ones((2, 6, 3), "float32"))
    axes = ["--static", "batch=2"] * 2
    command = ("export", tmp_path / "model.keras", tmp_path / "bundle", "--samples", tmp_path / "samples.npz", *axes)
    code, out, err = call(*command)
    assert code == 0
    assert_one_line(
        err, "warning: Axis `x_length` is static in the bundle. TensorFlow cannot trace it as unknown: 'None"
    )
    manifest = read_manifest(tmp_path / "bundle")
    assert [spec["shape"] for spec in manifest["inputs"]] == [[2, 6, 3], [2, "y_length", 2]]
    assert manifest["static"].keys() == {"batch", "x_length"}
    assert "static        batch: as asked\n              x_length: TensorFlow cannot trace it" in out
    assert "axes          y_length\n" in out


def test_export_needs_unsafe_for_code_and_strict_refuses_warnings(tmp_path, fails):
    model = tmp_path / "model.keras"
    x, unused_input = keras.Input((3,), name="x"), keras.Input((4,), name="unused")
    keras.Model([x, unused_input], keras.layers.Lambda(lambda y: y + 1)(x)).save(model)
    target = tmp_path / "new" / "bundle"
    assert "Lambda" in fails("export", model, target, message=f"error: Keras cannot load {model}: ")
    message = "error: All outputs match, but `strict` asks for more: Input `unused` changes no output."
    fails("export", model, target, "--unsafe", "--strict", "--json", message=message)
    assert list_names(tmp_path) == ["model.keras"]


def test_removed_options_name_their_replacement(model_file, tmp_path, wrong_usage):
    assert "docs/whole-answers.md" in wrong_usage("export", model_file, tmp_path / "bundle", "--in-steps")
    message = wrong_usage("export", model_file, tmp_path / "bundle", "--lowering", "auto")
    assert "--lowering: must be one of ('adaptive', 'portable', 'fused'). Received: 'auto'. Use " in message


@pytest.mark.parametrize("text", ["batch", "=3", "batch=0", "batch=two", "batch=1 batch=2"])
def test_static_axes_must_be_names_and_sizes(text, model_file, tmp_path, wrong_usage):
    static_options = [word for axis in text.split() for word in ("--static", axis)]
    message = wrong_usage("export", model_file, tmp_path / "bundle", "--static", "keys_length=3", *static_options)
    assert "batch is both 1 and 2" in message or f"'{text}' is not NAME=SIZE with a size of 1 or more" in message
