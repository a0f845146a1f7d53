"""Error messages for common mistakes of users of Keras, tf2onnx and onnxruntime: rule, value received and next step.

Each mistake was reported in the named issue, and is made here with this package. Other mistakes are tested with the
function that rejects them: a layer with a Python function (tensorflow issue 43542) in `tracing/test_to_onnx.py`.
"""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
from handwritten_bundles import write_onnx_bundle
from keras import layers

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import BundleError, InputError, UnsupportedModelError, export_model, load_bundle

X, WIDER_X = np.zeros((2, 5, 4), "float32"), np.zeros((2, 5, 6), "float32")
THREE_QUERIES = X[:, :3]


def attend(queries=X, keys=X, **options):
    return DotProductAttention()(queries, keys, X, **options)


LAYER_MISTAKES = {
    "inputs as one list (keras 20318)": (
        lambda: DotProductAttention()([X, X, X]),
        TypeError,
        r"missing .*'keys'. Received: a list of 3. Call it as `layer\(queries, keys, values\)`",
    ),
    "one input (philipperemy/keras-attention 56)": (
        lambda: AdditiveAttention(8)(X),
        TypeError,
        r"missing .*'keys'. Received: a tensor. Call it as .*`layer\(x, x, x\)` where all are one sequence",
    ),
    "other names of arguments (thushv89/attention_keras 47)": (
        lambda: DotProductAttention()(query=X, key=X, value=X),
        TypeError,
        r"missing .*'queries'. Received: `query`, `key`, `value`. .*Its arguments are `queries`, `keys`, `values`",
    ),
    "a mask for each input (tensorflow 41294)": (
        lambda: attend(mask=[None, np.ones((2, 5), bool)]),
        TypeError,
        "unexpected keyword argument 'mask'.*Its arguments are .*`attention_mask`.*`keys_mask`",
    ),
    "a mask of keys as one of pairs (tensorflow 49237)": (
        lambda: attend(THREE_QUERIES, attention_mask=np.ones((2, 5), bool)),
        ValueError,
        r"mask shape \(2, 5\), scores shape \(2, 3, 5\).*a mask of the keys, B \+ \(Tk,\), is `keys_mask`",
    ),
    "a mask of another shape (keras 21483)": (
        lambda: attend(THREE_QUERIES, attention_mask=np.ones((2, 5, 3), bool)),
        ValueError,
        r"must broadcast to the scores.*mask shape \(2, 5, 3\), scores shape \(2, 3, 5\). Give each axis",
    ),
    "a mask of numbers (keras 20511)": (
        lambda: attend(attention_mask=np.ones((2, 5, 5))),
        TypeError,
        r"must be boolean.*dtype float32. Cast it with `keras.ops.cast\(attention_mask, \"bool\"\)`",
    ),
    "queries and keys of two sizes (keras 19769)": (
        lambda: attend(keys=WIDER_X),
        ValueError,
        r"must agree in D.*queries shape \(2, 5, 4\), keys shape \(2, 5, 6\). Project one",
    ),
    "heads that do not divide (keras 21219)": (
        lambda: MultiHeadAttention(DotProductAttention(), num_heads=3)(X, X, X),
        ValueError,
        r"must divide Dq.*num_heads=3, queries shape \(2, 5, 4\). Pass `key_dim`",
    ),
    "heads as in Keras (keras 14405)": (
        lambda: MultiHeadAttention(8, 64),
        TypeError,
        r"must be a layer that scores, such as `DotProductAttention\(\)`. Received: attention of type int",
    ),
}


class Unregistered(layers.Layer):
    def call(self, x):
        return x


class Subclassed(keras.Model):
    def call(self, words, lengths):
        return words[:, 0] * lengths


def build_model(layer):
    x = keras.Input((4,), name="x")
    return keras.Model(x, layer(x))


def save_model(layer):
    build_model(layer).save("model.keras")
    return "model.keras"


def save_weights():
    build_model(layers.Dense(2)).save_weights("model.weights.h5")
    return "model.weights.h5"


def rename_weights():
    os.rename(save_weights(), "model.keras")
    return "model.keras"


def create(name, create_path):
    create_path(Path(name))
    return name


EXPORT_MISTAKES = {
    "a Sequential without an input (keras 20339)": (
        lambda: keras.Sequential([layers.Dense(2)]),
        InputError,
        "a Sequential without an Input, so its input shape is unknown. Pass `sample_inputs=",
    ),
    "a subclass that was never called (tensorflow 45202)": (
        Subclassed,
        InputError,
        r"inputs have no names. Pass `sample_inputs` .* of its `call` \(words, lengths\)",
    ),
    "a class that is not registered (keras 21046)": (
        lambda: save_model(Unregistered()),
        UnsupportedModelError,
        "does not know the class `Unregistered`.*Import its module .*`--import .* decorate it",
    ),
    "a lambda (keras 18284)": (
        lambda: save_model(layers.Lambda(lambda x: 2 * x)),
        UnsupportedModelError,
        r"contains a `Lambda` layer .* If you trust the file, pass `safe_mode=False` \(`--unsafe`\)",
    ),
    "weights without a model (keras 6937)": (
        save_weights,
        UnsupportedModelError,
        "model.weights.h5 holds only weights. Build the model, call `model.load_weights`",
    ),
    "another format under a new name (unicode-org/lstm_word_segmentation 28)": (
        rename_weights,
        UnsupportedModelError,
        "model.keras is not a `.keras` file: it is not a zip archive. Save the model",
    ),
    "HDF5 (PINTO0309/PINTO_model_zoo 154)": (
        lambda: create("model.h5", Path.touch),
        UnsupportedModelError,
        r"model.h5 is not a `.keras` file. Load it with .* save the model with `model.save\('x.keras'\)`",
    ),
    "a SavedModel (keras 18709)": (
        lambda: create("saved_model", Path.mkdir),
        UnsupportedModelError,
        "saved_model is a folder, such as a SavedModel. Save the Keras model itself",
    ),
    "a layer for a model (tensorflow 65419)": (
        lambda: layers.Dense(2),
        UnsupportedModelError,
        r"must be a keras.Model .* Received: Dense, a layer. .* pass `keras.Model\(inputs, outputs\)`",
    ),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle whose inputs are ids and images."""
    inputs = {"ids": ("int32", ["batch", "length"]), "image": ("float32", ["batch", 8, 8, 3])}
    outputs = {"a": inputs["ids"], "b": inputs["image"]}
    return write_onnx_bundle(tmp_path_factory.mktemp("b") / "bundle", "a = Abs(ids) b = Abs(image)", inputs, outputs)


IDS, IMAGE = np.ones((2, 5), "int32"), np.zeros((2, 8, 8, 3), "float32")
RUN_MISTAKES = {
    "a name that is missing (onnxruntime 11899)": (
        {"ids": IDS},
        r"\['image'\] are missing. The model takes \['ids', 'image'\]. Received: \['ids'\]",
    ),
    "a name that the model has not (onnxruntime 6389)": (
        {"ids": IDS, "image": IMAGE, "token_type_ids": IDS},
        r"\['token_type_ids'\] are unknown. The model takes \['ids', 'image'\]",
    ),
    "one example without a batch (onnx 3821)": (
        {"ids": IDS[0], "image": IMAGE},
        r"`ids` must have shape \('batch', 'length'\). Received: \(5,\). One example needs a batch axis",
    ),
    "numbers of another kind (keras-onnx 323)": (
        {"ids": IDS.astype("float64"), "image": IMAGE},
        r"`ids` must be of dtype int32. Received: float64. Convert it, as by `.astype\(\"int32\"\)`",
    ),
    "channels first (tensorflow-onnx 1007)": (
        {"ids": IDS, "image": np.moveaxis(IMAGE, -1, 1)},
        r"`image` must have shape \('batch', 8, 8, 3\), where 8 is fixed. Received: \(2, 3, 8, 8\)",
    ),
    "batches that disagree (onnxruntime 2468)": (
        {"ids": IDS[:1], "image": IMAGE},
        r"`image` must have shape .*, where `batch` is 1 in input `ids`. Received: \(2, 8, 8, 3\)",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), LAYER_MISTAKES.values(), ids=LAYER_MISTAKES)
def test_layer_call_explains_the_mistake(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("build", "error", "message"), EXPORT_MISTAKES.values(), ids=EXPORT_MISTAKES)
def test_export_explains_the_mistake(build, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argument = build()
    with pytest.raises(error, match=message):
        export_model(argument, "bundle")


@pytest.mark.parametrize(("inputs", "message"), RUN_MISTAKES.values(), ids=RUN_MISTAKES)
def test_bundle_run_explains_the_mistake(inputs, message, bundle):
    with pytest.raises(InputError, match=message):
        load_bundle(bundle).run(inputs)


def test_file_in_place_of_a_folder_is_refused(bundle, tmp_path):
    """`model.export("model.onnx")` of Keras accepts a file (keras 8638)."""
    with pytest.raises(
        BundleError, match=r"must be a folder, which will contain the ONNX file\. .* such as m: .* m/model.onnx"
    ):
        export_model(build_model(layers.Dense(2)), tmp_path / "m.onnx")
    with pytest.raises(BundleError, match="it is a file, and a bundle is a folder"):
        load_bundle(bundle / "model.onnx")


def test_old_onnxruntime_is_refused(tmp_path):
    """The message of onnxruntime itself is that the opset is under development (onnxruntime 5905)."""
    specs = {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}
    folder = write_onnx_bundle(tmp_path / "bundle", "y = Abs(x)", *specs, lowest_onnxruntime="999.0")
    with pytest.raises(BundleError, match=r"needs onnxruntime 999.0 or newer, and [\d.]+ is installed. Upgrade"):
        load_bundle(folder)
