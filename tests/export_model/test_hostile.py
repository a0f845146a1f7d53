"""Untrusted .keras files and malformed inputs: refused with a message of one line, before any code of a file runs."""

import json
import zipfile

import keras
import ml_dtypes
import numpy as np
import pytest
from handwritten_bundles import build_manifest
from small_bundle import draw_small_inputs

from keras_attn import AdditiveAttention
from keras_attn_export import InputError, UnsupportedModelError, export_model, load_bundle
from keras_attn_export._format.input_arrays import validate_inputs
from keras_attn_export._format.manifest import Spec

# ------------------------------------------------------------- .keras files


LAMBDA = {
    "class_name": "__lambda__",
    "config": {"code": "4wEAAAAAAAAAAAAAAAEAAAADAAAA8wYAAACXAHwAUwCpAE6pAKkBcgAAAA=="},
}


def make_config(module, class_name, **config):
    return {"module": module, "class_name": class_name, "registered_name": None, "config": config}


# the key of a layer's configuration that is replaced, or "layer" for all of it, and a value that runs a command
MALICIOUS_CONFIGS = {
    "a class of os": ("layer", lambda command: make_config("os", "system", command=command)),
    "an initializer": (
        "kernel_initializer",
        lambda command: make_config("subprocess", "Popen", args=command, shell=True),
    ),
    "a lambda": ("layer", lambda _: make_config("keras.layers", "Lambda", name="dense", function=LAMBDA)),
}


@pytest.mark.parametrize(("key", "build_value"), MALICIOUS_CONFIGS.values(), ids=MALICIOUS_CONFIGS)
def test_malicious_keras_file_runs_no_code(key, build_value, tmp_path, fails):
    """The configuration in the file contains a command that creates a file."""
    path, bundle = tmp_path / "model.keras", tmp_path / "bundle"
    x = keras.Input((3, 4), name="x")
    keras.Model(x, keras.layers.Dense(2, name="dense")(AdditiveAttention(3)(x, x, x))).save(path)
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(contents["config.json"])
    dense = next(layer for layer in config["config"]["layers"] if layer["config"]["name"] == "dense")
    value = build_value(f"touch {tmp_path / 'ran'}")
    if key == "layer":
        dense.update(value)
    else:
        dense["config"][key] = value
    contents["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(UnsupportedModelError, match=r"Keras cannot load .*model\.keras: \S"):
        export_model(path, bundle)
    fails("export", path, bundle, message=f"error: Keras cannot load {path}: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.keras"]


# ------------------------------------------------------------------- inputs


class FailingArray:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("not an array\n(second line)")


def build_recursive_list():
    value = []
    value.append(value)
    return value


MALFORMED_INPUTS = {
    "None": None,
    "bytes": b"bytes",
    "failing array": FailingArray(),
    "recursive list": build_recursive_list(),
    "a huge integer": 10**400,
    "ragged": [[1], [1, 2]],
    "deep": json.loads("[" * 200 + "1" + "]" * 200),
    "records": np.zeros(2, [("a", "f4"), ("b", "i4")]),
    "dates": np.zeros(2, "M8[s]"),
    "complex": np.ones(2, complex),
    "objects": np.array([1, 2], object),
    "40 axes": np.zeros((1,) * 40),
}


@pytest.mark.parametrize("value", MALFORMED_INPUTS.values(), ids=MALFORMED_INPUTS)
def test_malformed_inputs_are_refused_in_one_line(value):
    for dtype in ("float32", "float16", "int32", "uint8", "bool"):
        with pytest.raises(InputError, match=r"^Input `x` (must|holds) [^\n]+$"):
            validate_inputs(build_manifest([Spec("x", dtype, ("n",))]), {"x": value})


def test_bfloat16_is_converted_to_float32():
    value = np.array([1.5, np.inf, -3e38], ml_dtypes.bfloat16)
    array = validate_inputs(build_manifest([Spec("x", "float32", ("n",))]), {"x": value})["x"]
    np.testing.assert_array_equal(array, value.astype("float32"))


@pytest.mark.parametrize("inputs", [None, "queries", [1, 2]])
def test_inputs_must_be_a_mapping_or_all_arrays(exported, inputs):
    message = r"Inputs must be a mapping from names to arrays, or arrays for \[.+\]\. Received: \w+\.$"
    with pytest.raises(InputError, match=message):
        load_bundle(exported).run(inputs)


def test_sequence_of_inputs_follows_the_order_of_the_manifest(exported):
    bundle, inputs = load_bundle(exported), draw_small_inputs()
    arrays = [np.asarray(inputs[spec["name"]]) for spec in bundle.manifest["inputs"]]
    for name, array in bundle.run(arrays).items():
        np.testing.assert_array_equal(array, bundle.run(inputs)[name])
    with pytest.raises(InputError, match=r"or arrays for \['queries', .+\]\. Received: 1 arrays\.$"):
        bundle.run(arrays[:1])


def test_input_names_must_be_strings(exported):
    with pytest.raises(InputError, match=r"Inputs \[3, None\] are unknown"):
        load_bundle(exported).run({**draw_small_inputs(), 3: 1, None: 2})
