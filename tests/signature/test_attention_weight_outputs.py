"""Search for outputs that are attention weights: of layers, of subclassed models and of a greedy decoder."""

import keras
import numpy as np
import pytest
from decoding_models import (
    END,
    LENGTH,
    START,
    TOKENS,
    WIDTH,
    build_attention_models,
    build_recurrent_models,
    draw_ids,
    draw_weights,
)
from export_models import TwoArguments
from golden_case_helpers import generate_cases
from keras import layers, ops

from keras_attn import AdditiveAttention, AttentionCell, DotProductAttention, MaskedSoftmax, MultiHeadAttention
from keras_attn.decoding import beam, greedy
from keras_attn_export._signature.attention_weight_outputs import find_attention_outputs, find_collected_weights
from keras_attn_export._signature.signature import build_signature


class CustomAttention(DotProductAttention):
    """User-defined subclass, for which there is no lowering."""


X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


def find_in_model(model, inputs, samples=None):
    return find_attention_outputs(build_signature(model, samples), inputs)


def find_in_outputs(build_outputs, length=None):
    """Return the outputs of a function of an input that are attention weights, with the paths of their layers."""
    x = keras.Input((length, 4), name="x")
    return find_in_model(keras.Model(x, build_outputs(x)), {"x": X})


@pytest.mark.parametrize(
    ("layer", "num_inputs", "path"),
    [
        (AdditiveAttention(3, name="attend"), 3, "attend"),
        (DotProductAttention(name="attend"), 3, "attend"),
        (CustomAttention(name="attend"), 3, "attend"),
        # The manifest lists the layer of the scores, not the layer of the heads.
        (MultiHeadAttention(DotProductAttention(name="score"), num_heads=2, name="attend"), 3, "attend/score"),
        (layers.MultiHeadAttention(2, 2, name="attend"), 2, "attend"),
        (layers.Attention(name="attend"), None, "attend"),
    ],
    ids=["additive", "dot product", "custom", "heads", "heads of Keras", "of Keras"],
)
def test_weights_have_the_path_of_the_layer_that_returns_them(layer, num_inputs, path):
    def build_outputs(x):
        inputs = [x] * num_inputs if num_inputs else [[x, x]]
        output, weights = layer(*inputs, return_attention_scores=True)
        return {"output": output, "weights": weights, "twice": 2 * weights}

    assert find_in_outputs(build_outputs) == {"weights": path}
    assert "call" not in vars(layer), "the search changed the layer"


def test_weights_of_a_single_query_are_recognized_without_the_query_axis():
    def build_outputs(x, queries):
        _, weights = DotProductAttention(name="attend")(x[:, :queries], x, x, return_attention_scores=True)
        return {"first": weights[:, 0], "largest": ops.max(weights, axis=-1)}

    assert find_in_outputs(lambda x: build_outputs(x, 1), 5) == {"first": "attend"}
    assert find_in_outputs(lambda x: build_outputs(x, 5), 5) == {}


def test_weights_of_masked_softmax_and_subclassed_models_are_recognized():
    assert find_in_outputs(lambda x: {"weights": MaskedSoftmax(name="soft")(x)}) == {"weights": "soft"}
    model, samples = TwoArguments(), {"q": X, "kv": X}
    assert find_in_model(model, samples, samples) == {"weights": model.attention.path}


OPTIONS = {"start": START, "end": END, "max_length": LENGTH}


def build_models_with_lengths(attention):
    """Return an encoder with an input of lengths, the step whose cell reads the lengths, and the names of the state."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    encoder = keras.Model([valid_lens, ids], {"values": layers.Embedding(9, WIDTH)(ids)})
    token, lens = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
    memory, state = keras.Input((None, WIDTH), name="values"), keras.Input((WIDTH,), name="state")
    cell, embedded = AttentionCell(layers.GRUCell(WIDTH), attention), layers.Embedding(TOKENS, WIDTH)(token)
    (output, (next_state,)), weights = cell(embedded, [state], memory, lens, return_attention_scores=True)
    outputs = {"logits": layers.Dense(TOKENS)(output), "next": next_state, "weights": weights, "twice": 2 * weights}
    step = keras.Model([token, lens, memory, state], outputs)
    draw_weights(2, encoder, step)
    return encoder, step, {"next": "state"}


def draw_ids_and_lengths(rows):
    return {**draw_ids(rows), "valid_lens": np.arange(1, rows + 1, dtype="int32")}


def test_weights_of_a_step_are_recognized_except_for_several_heads():
    model = greedy(*build_attention_models(), **OPTIONS, outputs=["weights"])
    assert find_collected_weights(build_signature(model), draw_ids(3)) == {"weights": "attend"}
    for attention in (AdditiveAttention(5), MultiHeadAttention(DotProductAttention(), num_heads=2)):
        model = greedy(*build_models_with_lengths(attention), **OPTIONS, outputs=["weights", "twice"])
        expected = {"weights": attention.path} if isinstance(attention, AdditiveAttention) else {}
        assert find_collected_weights(build_signature(model), draw_ids_and_lengths(3)) == expected


@pytest.mark.parametrize(
    "build_model",
    [
        lambda: greedy(*build_attention_models(), **OPTIONS),
        lambda: greedy(*build_recurrent_models(), **OPTIONS, outputs=["weights"]),
        lambda: beam(*build_attention_models(), **OPTIONS, outputs=["weights"]),
        lambda: build_recurrent_models()[0],
    ],
    ids=["no weights requested", "not of a layer", "beam search", "no decoder"],
)
def test_models_without_collected_weights_have_none(build_model):
    assert find_collected_weights(build_signature(build_model()), draw_ids(3)) == {}


@pytest.mark.slow
def test_lengths_that_a_step_reads_count_the_ids():
    model = greedy(*build_models_with_lengths(AdditiveAttention(5)), **OPTIONS)
    golden = generate_cases(model, draw_ids_and_lengths(3))
    assert golden.counted_axes == {"valid_lens": "ids_length"}
    assert {int(length) for case in golden.cases for length in case.inputs["valid_lens"]} >= {-1, 0, 1}
