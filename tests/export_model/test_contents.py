"""Attention that a package wrote by hand becomes an operator, if the file then gives what Keras does."""

from dataclasses import replace

import keras
import pytest
from keras import ops

from keras_attn_export import export_model
from keras_attn_export._lowerings import lower


class ByHand(keras.layers.Layer):
    """Attention of two heads to itself, which gives zeros where a query has no key, as keras_hub's layers do."""

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
    return keras.Model([x, mask], ByHand(name="by_hand")(x, mask))


@pytest.mark.slow
def test_hand_written_attention_becomes_the_operator(model, tmp_path):
    (told,) = export_model(model, tmp_path / "bundle").manifest["layers"]
    assert {key: told[key] for key in ("class", "lowering")} == {"class": "operations", "lowering": "fused"}
    assert "by_hand" in told["name"]


@pytest.mark.slow
def test_different_operator_is_dropped(model, tmp_path, monkeypatch):
    def wrong(*given):
        found, calls = lower_by_hand(*given)
        return found, [replace(call, options={"scale": 2.0}) for call in calls]

    lower_by_hand = lower.with_written_attention
    monkeypatch.setattr(lower, "with_written_attention", wrong)
    bundle = export_model(model, tmp_path / "bundle")
    assert (bundle.manifest["layers"], bundle.manifest["opset"]) == ([], 18)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"lowering": "portable"}, {"opset": 20}])
def test_hand_written_attention_stays_if_the_operator_is_excluded(model, tmp_path, asked):
    assert export_model(model, tmp_path / "bundle", **asked).manifest["layers"] == []
