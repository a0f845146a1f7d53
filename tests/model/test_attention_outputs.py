"""Outputs that are attention weights are found by the layers that give them, whatever kind of model they are in."""

import keras
import numpy as np
import pytest

from keras_attn import AdditiveAttention, AttentionPooling, DotProductAttention, MaskedSoftmax, MultiHeadAttention
from keras_attn_export._model.attention_outputs import attention_outputs


class NegativeDistance(AttentionPooling):
    """A score of one's own, which no lowering knows."""

    def score(self, queries, keys):
        gaps = keras.ops.expand_dims(queries, -2) - keras.ops.expand_dims(keys, -3)
        return -keras.ops.sum(keras.ops.abs(gaps), axis=-1)


class Returning(keras.Model):
    """A subclassed model, of which Keras knows no graph."""

    def __init__(self):
        super().__init__()
        self.attend = DotProductAttention(name="inner")

    def call(self, x):
        output, weights = self.attend(x, x, x, return_attention_scores=True)
        return {"mean": keras.ops.mean(weights, axis=-1), "weights": weights, "output": output}


INPUTS = {"x": np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")}


def found(model):
    def outputs(inputs):
        given = model(inputs["x"])
        return {name: np.asarray(keras.ops.convert_to_numpy(tensor)) for name, tensor in given.items()}

    return attention_outputs(model, outputs, INPUTS)


def functional(layer, **more):
    x = keras.Input((None, 4), name="x")
    output, weights = layer(x, x, x, return_attention_scores=True, **more)
    return keras.Model(x, {"output": output, "weights": weights, "twice": 2 * weights})


@pytest.mark.parametrize(
    "layer",
    [
        AdditiveAttention(3, name="attend"),
        DotProductAttention(name="attend"),
        NegativeDistance(name="attend"),
        MultiHeadAttention(DotProductAttention(name="score"), num_heads=2, name="attend"),
        keras.layers.Attention(name="attend"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_weights_of_every_kind_of_layer(layer):
    model = functional(layer) if not isinstance(layer, keras.layers.Attention) else of_keras(layer)
    inner = "/score" if isinstance(layer, MultiHeadAttention) else ""  # as the manifest lists it
    assert found(model) == {"weights": layer.path + inner}
    assert "call" not in vars(layer)  # it is left as it was


def of_keras(layer):
    x = keras.Input((None, 4), name="x")
    output, weights = layer([x, x], return_attention_scores=True)
    return keras.Model(x, {"output": output, "weights": weights})


def test_weights_of_keras_heads():
    x = keras.Input((None, 4), name="x")
    output, weights = keras.layers.MultiHeadAttention(2, 2, name="heads")(x, x, return_attention_scores=True)
    assert found(keras.Model(x, {"output": output, "weights": weights})) == {"weights": "heads"}


def test_masked_softmax_alone():
    x = keras.Input((None, 4), name="x")
    assert found(keras.Model(x, {"weights": MaskedSoftmax(name="soft")(x)})) == {"weights": "soft"}


def test_weights_of_a_single_query_without_its_axis():
    x = keras.Input((5, 4), name="x")
    _, weights = DotProductAttention(name="attend")(x[:, :1], x, x, return_attention_scores=True)
    one = {"weights": keras.ops.squeeze(weights, 1), "largest": keras.ops.max(weights, axis=-1)}
    assert found(keras.Model(x, one)) == {"weights": "attend"}
    _, several = DotProductAttention(name="attend")(x, x, x, return_attention_scores=True)
    assert found(keras.Model(x, {"first": several[:, 0]})) == {}


def test_a_subclassed_model():
    model = Returning()
    model(INPUTS["x"])
    assert found(model) == {"weights": model.attend.path}


def test_a_model_that_returns_no_weights():
    x = keras.Input((None, 4), name="x")
    assert found(keras.Model(x, {"output": DotProductAttention()(x, x, x)})) == {}
    assert found(keras.Model(x, {"output": keras.layers.Dense(2)(x)})) == {}
