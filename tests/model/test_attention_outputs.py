"""Outputs that are attention weights are found by the layers that give them, whatever kind of model they are in."""

import keras
import numpy as np
import pytest
from export_models import TwoArguments
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention, MaskedSoftmax, MultiHeadAttention
from keras_attn_export._model.attention_outputs import attention_outputs
from keras_attn_export._model.signature import model_signature


class Own(DotProductAttention):
    """A class of one's own, which no lowering knows."""


X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


def found(model, inputs, samples=None):
    return attention_outputs(model_signature(model, samples), inputs)


def found_of(outputs, length=None):
    """What is found in the outputs that a function makes of an input."""
    x = keras.Input((length, 4), name="x")
    return found(keras.Model(x, outputs(x)), {"x": X})


@pytest.mark.parametrize(
    ("layer", "inputs", "path"),
    [
        (AdditiveAttention(3, name="attend"), 3, "attend"),
        (DotProductAttention(name="attend"), 3, "attend"),
        (Own(name="attend"), 3, "attend"),
        # as the manifest lists it
        (MultiHeadAttention(DotProductAttention(name="score"), num_heads=2, name="attend"), 3, "attend/score"),
        (layers.MultiHeadAttention(2, 2, name="attend"), 2, "attend"),
        (layers.Attention(name="attend"), None, "attend"),
    ],
    ids=["additive", "dot product", "one's own", "heads", "heads of Keras", "of Keras"],
)
def test_weights_are_found_by_the_layer_that_returns_them(layer, inputs, path):
    def outputs(x):
        taken = [x] * inputs if inputs else [[x, x]]
        output, weights = layer(*taken, return_attention_scores=True)
        return {"output": output, "weights": weights, "twice": 2 * weights}

    assert found_of(outputs) == {"weights": path}
    assert "call" not in vars(layer)  # it is left as it was


def test_weights_of_a_single_query_are_found_without_the_query_axis():
    def outputs(x, queries):
        _, weights = DotProductAttention(name="attend")(x[:, :queries], x, x, return_attention_scores=True)
        return {"first": weights[:, 0], "largest": ops.max(weights, axis=-1)}

    assert found_of(lambda x: outputs(x, 1), 5) == {"first": "attend"}
    assert found_of(lambda x: outputs(x, 5), 5) == {}


def test_weights_are_found_in_masked_softmax_and_in_subclassed_models():
    assert found_of(lambda x: {"weights": MaskedSoftmax(name="soft")(x)}) == {"weights": "soft"}
    model = TwoArguments()
    given = {"q": X, "kv": X}
    assert found(model, given, given) == {"weights": model.attention.path}
