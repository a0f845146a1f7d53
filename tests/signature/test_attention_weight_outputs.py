"""Outputs that are attention weights, of layers in models of any kind and of the steps of a greedy decoder."""

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


class Own(DotProductAttention):
    """A class of one's own, which no lowering knows."""


X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


def found(model, inputs, samples=None):
    return find_attention_outputs(build_signature(model, samples), inputs)


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


OPTIONS = {"start": START, "end": END, "max_length": LENGTH}


def with_lengths(attention):
    """A step whose cell attends, and an encoder that is given lengths, which only the step reads."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    encoder = keras.Model([valid_lens, ids], {"values": layers.Embedding(9, WIDTH)(ids)})
    token, lens = (keras.Input((), dtype="int32", name=name) for name in ("token", "valid_lens"))
    seen, state = keras.Input((None, WIDTH), name="values"), keras.Input((WIDTH,), name="state")
    cell = AttentionCell(layers.GRUCell(WIDTH), attention)
    (output, (after,)), weights = cell(
        layers.Embedding(TOKENS, WIDTH)(token), [state], seen, lens, return_attention_scores=True
    )
    outputs = {"logits": layers.Dense(TOKENS)(output), "after": after, "weights": weights, "twice": 2 * weights}
    step = keras.Model([token, lens, seen, state], outputs)
    draw_weights(2, encoder, step)
    return encoder, step, {"after": "state"}


def lengths_of(count):
    return {**draw_ids(count), "valid_lens": np.arange(1, count + 1, dtype="int32")}


def test_weights_of_a_step_are_found_but_for_several_heads():
    found = find_collected_weights(
        build_signature(greedy(*build_attention_models(), **OPTIONS, outputs=["weights"])), draw_ids(3)
    )
    assert found == {"weights": "attend"}
    for attention in (AdditiveAttention(5), MultiHeadAttention(DotProductAttention(), num_heads=2)):
        model = greedy(*with_lengths(attention), **OPTIONS, outputs=["weights", "twice"])
        expected = {"weights": attention.path} if isinstance(attention, AdditiveAttention) else {}
        assert find_collected_weights(build_signature(model), lengths_of(3)) == expected


@pytest.mark.parametrize(
    "model",
    [
        lambda: greedy(*build_attention_models(), **OPTIONS),
        lambda: greedy(*build_recurrent_models(), **OPTIONS, outputs=["weights"]),
        lambda: beam(*build_attention_models(), **OPTIONS, outputs=["weights"]),
        lambda: build_recurrent_models()[0],
    ],
    ids=["that are not given", "of no layer", "of a beam", "of no decoder"],
)
def test_models_without_collected_weights_have_none(model):
    assert find_collected_weights(build_signature(model()), draw_ids(3)) == {}


@pytest.mark.slow
def test_lengths_that_a_step_reads_count_the_ids():
    model = greedy(*with_lengths(AdditiveAttention(5)), **OPTIONS)
    golden = generate_cases(model, lengths_of(3))
    assert golden.counted_axes == {"valid_lens": "ids_length"}
    assert {int(length) for case in golden.cases for length in case.inputs["valid_lens"]} >= {-1, 0, 1}
