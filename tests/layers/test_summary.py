"""What `model.summary()` says of each layer: its shapes, and nothing beside the layers that were called."""

import inspect

import keras
import numpy as np
import pytest
from keras import layers

import keras_attn
from keras_attn import AdditiveAttention, AttentionCell, DotProductAttention
from keras_attn.decoding import greedy

HEADS = {"num_heads": 2}
OPTIONS = {
    "AdditiveAttention": {"num_hiddens": 4},
    "AttentionCell": {"cell": layers.GRUCell(5), "attention": AdditiveAttention(4)},
    "AttentionRNN": {"cell": AttentionCell(layers.GRUCell(5), AdditiveAttention(4))},
    "LinearBias": HEADS,
    "LocationSensitiveAttention": {"num_hiddens": 4, "filters": 3, "kernel_size": 3},
    "MultiHeadAttention": {"attention": DotProductAttention(), **HEADS},
    "RelativePositionBias": HEADS,
}
CALLS = {  # others are called with queries, keys and values
    "AttentionCell": lambda cell, x: cell(x[:, 0], cell.get_initial_state(batch_size=2, memory=x), x),
    "AttentionRNN": lambda layer, x: layer(x, x),
    "LinearBias": lambda layer, x: layer(x, x),
    "MaskedSoftmax": lambda layer, x: layer(x),
    "RelativePositionBias": lambda layer, x: layer(x, x),
    "RotaryEmbedding": lambda layer, x: layer(x),
}
SHAPES = {  # of others that of what comes in
    "AttentionCell": "((2, 5), [(2, 5)])",
    "AttentionRNN": "(2, 3, 5)",
    "LinearBias": "(1, 2, 3, 3)",
    "RelativePositionBias": "(1, 2, 3, 3)",
}
LAYERS = [name for name in keras_attn.__all__ if inspect.isclass(vars(keras_attn)[name]) and name != "AttentionPooling"]


class Calling(keras.Model):
    """A subclass, which calls one layer: no functional model knows its shapes."""

    def __init__(self, name):
        super().__init__()
        self.called = CALLS.get(name, lambda layer, x: layer(x, x, x))
        self.layer = vars(keras_attn)[name](**OPTIONS.get(name, {}), name="layer")

    def call(self, x):
        self.called(self.layer, x)
        return x


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def rows(model):
    """The rows of a summary by the name of the layer, the shapes first."""
    lines = []
    model.summary(line_length=160, print_fn=lambda text, **_: lines.append(text))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in "\n".join(lines).split("\n") if "│" in line]
    return {name.split(" ")[0]: rest for name, *rest in cells if name}


@pytest.mark.parametrize("name", LAYERS)
def test_shapes_are_known_in_a_subclass(name):
    model = Calling(name)
    model(np.zeros((2, 3, 4), "float32"))
    shapes, parameters = rows(model)["layer"]
    assert shapes == SHAPES.get(name, "(2, 3, 4)")
    assert int(parameters) == model.layer.count_params()


@pytest.mark.parametrize(("size", "more"), [(4, set()), (6, {"zeros_like"})], ids=["the same size", "another size"])
def test_a_state_stands_there_without_placeholders_where_keys_have_the_size_of_queries(size, more):
    """Of queries of another size there have to be some, since the layer is built on what it is called with."""
    queries, keys = keras.Input((None, size), name="queries"), keras.Input((None, 4), name="keys")
    layer = AdditiveAttention(8, name="attend")
    layer.build((None, None, size), (None, None, 4), (None, None, 4))
    shown = rows(keras.Model([queries, keys], layer(queries, layer.precompute(keys, keys))))
    assert {name.rstrip("_0123456789") for name in shown} == {"queries", "keys", "attend", *more}


def test_a_mask_of_the_keys_is_that_of_their_projections_alone():
    layer = AdditiveAttention(8)
    layer.build(*[(None, None, 4)] * 3)
    keys = layers.Embedding(5, 4, mask_zero=True)(np.array([[1, 2, 0]]))
    state = layer.precompute(keys, np.zeros((1, 3, 4), "float32"), capacity=5)
    assert [name for name, x in state.items() if getattr(x, "_keras_mask", None) is not None] == ["projected_keys"]


def test_a_decoder_has_the_name_of_its_layer():
    words = keras.Input((None,), dtype="int32", name="words")
    encoder = keras.Model({"words": words}, {"memory": layers.Embedding(9, 6)(words)})
    token, memory = keras.Input((), dtype="int32", name="token"), keras.Input((None, 6), name="memory")
    logits = layers.Dense(9)(layers.Embedding(9, 6)(token) + memory[:, 0])
    step = keras.Model({"token": token, "memory": memory}, {"logits": logits})
    model = greedy(encoder, step, {}, start=1, max_length=5)
    assert model.name == model.layers[-1].name
    assert model.name.startswith("greedy_decoding")
    assert greedy(encoder, step, {}, start=1, max_length=5, name="own").name == "own"
