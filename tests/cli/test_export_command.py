"""`keras-attn export`: its options, what it refuses, and that a failure leaves nothing."""

import importlib
import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from bundles import assert_one_line, names, read_manifest

import keras_attn_export
from keras_attn_export._cli.main import main

pytest_plugins = ("bundle_fixtures", "command_fixtures")


def test_export_with_options_prints_only_json(bundle, model_file, samples, tmp_path, call):
    code, out, err = call("export", model_file, bundle, "--samples", samples, "--opset", 20, "--overwrite", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["bundle"] == str(bundle)
    assert content["manifest"] == read_manifest(bundle)
    assert content["manifest"]["opset"] == 20
    assert {"samples", "base"} <= {row["case"] for row in content["report"]["rows"]}
    assert content["report"]["refused"] == {}
    assert names(tmp_path) == ["bundle", "samples.npz"]
    assert keras_attn_export.verify_bundle(bundle).passed


def test_export_does_not_replace_a_bundle_unasked(bundle, model_file, tmp_path, call):
    before = read_manifest(bundle)
    code, out, err = call("export", model_file, bundle)
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {bundle} already exists. Pass overwrite=True (--overwrite) to replace it.")
    assert read_manifest(bundle) == before
    assert names(tmp_path) == ["bundle"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.keras", "new"], "There is no model file at nowhere.keras."),
        (["notes.txt", "new"], "notes.txt is not a `.keras` file."),
        (["broken.keras", "new"], "Keras cannot load broken.keras: "),
        (["MODEL", "new", "--opset", "17"], "`opset` must be an integer from 18 to 24. Received: 17."),
        (["MODEL", "new", "--lowering", "fused", "--opset", "18"], "`lowering='fused'` needs opset 24"),
        (["MODEL", "new", "--samples", "nowhere.npz"], "There is no file nowhere.npz."),
        (["MODEL", "new", "--samples", "notes.txt"], "notes.txt is not an .npz file of plain arrays"),
        (
            ["MODEL", "new", "--samples", "other.npz"],
            "`sample_inputs` names ['other'], of which the model does not take ['other']",
        ),
        (
            ["MODEL", "new", "--static", "length=3"],
            "`static_axes` names ['length']. The dynamic axes of this model are [",
        ),
        (["MODEL", "notes.txt"], "notes.txt is a file. A bundle is a folder"),
        (["MODEL", "notes.txt/new"], "notes.txt is a file, so "),
    ],
)
def test_exports_that_cannot_be_made(model_file, tmp_path, call, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("mine")
    Path("broken.keras").write_bytes(b"PK\x03\x04 and no more")
    np.savez("other.npz", other=np.ones(3))
    code, out, err = call("export", *(model_file if word == "MODEL" else word for word in arguments))
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert said in err
    assert names(tmp_path) == ["broken.keras", "notes.txt", "other.npz"]


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
    "same_name": """
import keras

class Plain(keras.layers.Layer):
    def call(self, x):
        return x + 1000
""",
}


@pytest.fixture
def own_model(tmp_path, monkeypatch):
    """Write modules with layers, and a model of those of two as a file, and forget them."""
    for name, text in OWN_MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as an installed command has it
    before = dict(keras.saving.get_custom_objects())
    sys.path.insert(0, str(tmp_path))
    own, more = importlib.import_module("own_layers"), importlib.import_module("more_layers")
    x = keras.Input((3,), name="x")
    keras.Model(x, {"y": more.Plain()(own.Doubled()(x))}).save(tmp_path / "model.keras")

    def forget():
        for name in OWN_MODULES:
            sys.modules.pop(name, None)
        keras.saving.get_custom_objects().clear()
        keras.saving.get_custom_objects().update(before)

    forget()
    sys.path.remove(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield "model.keras"
    forget()


def test_classes_of_modules_that_are_not_imported(own_model, call):
    for modules, said in (
        ([], "does not know the class `Doubled` of module `own_layers`"),
        (["no_such_module"], "error: Cannot import `no_such_module` (ModuleNotFoundError: "),
        (["own_layers"], "does not know the class `Plain` of module `more_layers`"),
    ):
        code, _, err = call("export", own_model, "bundle", *imports(modules))
        assert code == 1
        assert_one_line(err)
        assert said in err


def test_classes_of_modules_that_are_imported_first(own_model, call):
    code, out, err = call("export", own_model, "bundle", *imports(["own_layers", "more_layers"]), "--strict")
    assert code == 0, err
    assert "it matches Keras" in out
    y = keras_attn_export.load_bundle("bundle").run({"x": np.ones((1, 3), "float32")})["y"]
    np.testing.assert_array_equal(y, np.full((1, 3), 3))


def test_what_modules_and_models_print_is_not_among_the_json(own_model, call):
    for name, text in OWN_MODULES.items():
        loud = text.replace("return", "print('a call'); return")
        Path(f"{name}.py").write_text(f"{loud}\nprint('an import')\n")
    modules = imports(["own_layers", "more_layers"])
    code, out, err = call("export", own_model, "bundle", *modules, "--json")
    assert code == 0, err
    assert json.loads(out)["report"]["passed"]
    assert {"an import", "a call"} <= set(err.splitlines())
    np.savez("samples.npz", x=np.ones((2, 3), "float32"))
    for name in OWN_MODULES:
        sys.modules.pop(name, None)
    code, out, err = call("verify", "bundle", "--samples", "samples.npz", "--model", own_model, *modules, "--json")
    assert code == 0, err
    assert json.loads(out)["passed"]
    assert {"an import", "a call"} <= set(err.splitlines())


def test_layers_of_one_name_are_not_mistaken_for_each_other(own_model, call):
    code, out, err = call("export", own_model, "bundle", *imports(["own_layers", "more_layers", "same_name"]))
    assert (code, out) == (1, "")
    assert_one_line(err, "error: `more_layers` and `same_name` both hold a layer that a file calls `Plain`. ")
    assert not Path("bundle").exists()


def imports(modules):
    return [word for name in modules for word in ("--import", name)]


@keras.saving.register_keras_serializable("tests")
class Running(keras.layers.Layer):
    """A sum over the steps so far, in a loop that TensorFlow cannot trace for an unknown number of steps."""

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)

    def call(self, x):
        return keras.ops.stack([keras.ops.sum(x[:, : step + 1], 1) for step in range(x.shape[1])], 1)


def test_static_axes_asked_for_and_not_avoided(tmp_path, call):
    x, y = keras.Input((None, 3), name="x"), keras.Input((None, 2), name="y")
    keras.Model([x, y], [Running()(x), keras.ops.relu(y)]).save(tmp_path / "model.keras")
    code, out, err = call("export", tmp_path / "model.keras", tmp_path / "bundle", *["--static", "batch=2"] * 2)
    assert code == 0
    assert_one_line(
        err, "warning: Axis `x_length` is static in the bundle. TensorFlow cannot trace it as unknown: 'None"
    )
    manifest = read_manifest(tmp_path / "bundle")
    assert [spec["shape"] for spec in manifest["inputs"]] == [[2, 6, 3], [2, "y_length", 2]]
    assert manifest["static"].keys() == {"batch", "x_length"}
    assert "static      batch: as asked\n            x_length: TensorFlow cannot trace it" in out
    assert "axes        y_length\n" in out


def test_what_is_left_open_is_a_warning_and_with_strict_an_error(tmp_path, call):
    x, unused = keras.Input((4,), name="x"), keras.Input((4,), name="unused")
    keras.Model([x, unused], keras.layers.Dense(2, name="y")(x)).save(tmp_path / "model.keras")
    code, out, err = call("export", tmp_path / "model.keras", tmp_path / "new" / "bundle", "--strict", "--json")
    assert (code, out) == (1, "")
    assert_one_line(err, "error: All outputs match, but `strict` asks for more: Input `unused` moves no output.")
    assert names(tmp_path) == ["model.keras"]
    code, out, err = call("export", tmp_path / "model.keras", tmp_path / "new" / "bundle")
    assert (code, err) == (0, "")
    assert "\nwarning     Input `unused` moves no output.\n" in out
    assert out.rstrip().endswith("it matches Keras.")
    assert names(tmp_path / "new") == ["bundle"]


@pytest.mark.parametrize("text", ["batch", "=3", "batch=0", "batch=-1", "batch=two", "batch=1.5"])
def test_static_axes_are_names_and_sizes(text, model_file, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", str(model_file), str(tmp_path / "bundle"), "--static", text])
    assert ended.value.code == 2
    assert f"'{text}' is not NAME=SIZE with a size of 1 or more" in capsys.readouterr().err


def test_an_axis_has_one_size(model_file, tmp_path, capsys):
    static = ["--static", "batch=1", "--static", "keys_length=3", "--static", "batch=2"]
    with pytest.raises(SystemExit) as ended:
        main(["export", str(model_file), str(tmp_path / "bundle"), *static])
    assert ended.value.code == 2
    assert "argument --static: batch is both 1 and 2; an axis has one size" in capsys.readouterr().err


def test_only_unsafe_loads_a_file_that_holds_code(tmp_path, call):
    x = keras.Input((3,), name="x")
    keras.Model(x, keras.layers.Lambda(lambda y: y + 1)(x)).save(tmp_path / "model.keras")
    code, _, err = call("export", tmp_path / "model.keras", tmp_path / "bundle")
    assert code == 1
    assert_one_line(err)
    assert names(tmp_path) == ["model.keras"]
    code, _, err = call("export", tmp_path / "model.keras", tmp_path / "bundle", "--unsafe")
    assert (code, err) == (0, "")


def lookup_model():
    x = keras.Input((), dtype="int64", name="x")
    return keras.Model(x, keras.layers.IntegerLookup(vocabulary=[4, 5], name="lookup")(x)), {"x": np.array([4, 5])}


def stateful_gru():
    x = keras.Input((4, 3), batch_size=2, name="x")
    return keras.Model(x, keras.layers.GRU(2, stateful=True, name="memory")(x)), None


def untold_integers():
    x = keras.Input((4,), dtype="int32", name="digits")
    return keras.Model(x, keras.ops.one_hot(x, 5)), None


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lookup_model, "`LookupTableFindV2` of layer `lookup`"),
        (stateful_gru, "`memory`"),
        (untold_integers, "`digits`"),
    ],
)
def test_models_that_are_refused_leave_nothing(build, said, tmp_path, capsys):
    model, samples = build()
    place = tmp_path / "place"
    place.mkdir()
    model.save(tmp_path / "model.keras")
    options = []
    if samples:
        np.savez(tmp_path / "samples.npz", **samples)
        options = ["--samples", str(tmp_path / "samples.npz")]
    assert main(["export", str(tmp_path / "model.keras"), str(place / "bundle"), *options]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert names(place) == []
