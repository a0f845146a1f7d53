"""Lowering of Keras's attention layers and of hand-written attention: operators or functions in the file."""

from dataclasses import replace

import keras
import onnx
import pytest
from keras import ops

from keras_attn_export import export_model
from keras_attn_export._lowerings import lower_model


class HandWrittenAttention(keras.layers.Layer):
    """Self-attention with two heads and zeros for fully masked queries, as in keras_hub."""

    def build(self, shape):
        self.softmax = keras.layers.Softmax()

    def call(self, x, mask):
        heads = ops.transpose(ops.reshape(x, (-1, ops.shape(x)[1], 2, 3)), (0, 2, 1, 3))
        scores = ops.matmul(heads, ops.transpose(heads, (0, 1, 3, 2))) / 3**0.5
        pooled = ops.matmul(self.softmax(scores, mask[:, None, None]), heads)
        return ops.reshape(ops.transpose(pooled, (0, 2, 1, 3)), (-1, ops.shape(x)[1], 6))


@pytest.fixture
def model():
    x, mask = keras.Input((None, 6), name="x"), keras.Input((None,), dtype="bool", name="mask")
    return keras.Model([x, mask], HandWrittenAttention(name="by_hand")(x, mask))


@pytest.mark.slow
def test_hand_written_attention_becomes_the_operator(model, tmp_path):
    (layer,) = export_model(model, tmp_path / "bundle").manifest["layers"]
    assert {key: layer[key] for key in ("class", "lowering")} == {"class": "operations", "lowering": "fused"}
    assert "by_hand" in layer["name"]


@pytest.mark.slow
def test_operator_with_different_outputs_is_dropped(model, tmp_path, monkeypatch):
    def replace_with_wrong_scale(*arguments):
        traced, calls = replace_patterns(*arguments)
        return traced, [replace(call, options={"scale": 2.0}) for call in calls]

    replace_patterns = lower_model.replace_attention_patterns
    monkeypatch.setattr(lower_model, "replace_attention_patterns", replace_with_wrong_scale)
    bundle = export_model(model, tmp_path / "bundle")
    assert (bundle.manifest["layers"], bundle.manifest["opset"]) == ([], 18)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"lowering": "portable"}, {"opset": 20}])
def test_hand_written_attention_stays_if_the_operator_is_excluded(model, tmp_path, options):
    assert export_model(model, tmp_path / "bundle", **options).manifest["layers"] == []


def build_encoder():
    """Return a model of Keras's attention layers with implicit masks: id 0 is padding."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(50, 8, mask_zero=True)(ids)
    x = keras.layers.MultiHeadAttention(2, 4, name="heads")(x, x)
    x = x + keras.layers.GroupQueryAttention(4, 4, 2, dropout=0.1, name="groups")(x, x, use_causal_mask=True)
    x = keras.layers.Attention(name="products")([x, x])
    return keras.Model(ids, keras.layers.AdditiveAttention(name="additive")([x, x]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:[\\s\\S]*destroy the mask:UserWarning")
@pytest.mark.parametrize("lowering", ["portable", "adaptive"])
def test_stock_attention_layers_are_lowered(lowering, tmp_path):
    bundle = export_model(build_encoder(), tmp_path / "bundle", lowering=lowering)
    assert bundle.report.passed
    classes = ("MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")
    lowerings = [(layer["class"], layer["lowering"]) for layer in bundle.manifest["layers"]]
    assert lowerings == [(name, lowering) for name in classes]
    functions = onnx.load(bundle.path / "model.onnx").functions
    assert len(functions) == (4 if lowering == "adaptive" else 0)
