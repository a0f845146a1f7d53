"""Of a greedy decoder the weights of all steps are known as such, and its inputs as what encoder and step read."""

import keras
import numpy as np
import pytest
from decoding_models import END, LENGTH, START, TOKENS, WIDTH, attending, draw_weights, ids_of, recurrent
from golden import cases_of
from keras import layers

from keras_attn import AdditiveAttention, AttentionCell, DotProductAttention, MultiHeadAttention
from keras_attn.decoding import beam, greedy
from keras_attn_export._model.collected_weights import collected_weights
from keras_attn_export._model.signature import model_signature

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
    return {**ids_of(count), "valid_lens": np.arange(1, count + 1, dtype="int32")}


def test_weights_of_a_step_are_found_but_for_several_heads():
    found = collected_weights(model_signature(greedy(*attending(), **OPTIONS, outputs=["weights"])), ids_of(3))
    assert found == {"weights": "attend"}
    for attention in (AdditiveAttention(5), MultiHeadAttention(DotProductAttention(), num_heads=2)):
        model = greedy(*with_lengths(attention), **OPTIONS, outputs=["weights", "twice"])
        expected = {"weights": attention.path} if isinstance(attention, AdditiveAttention) else {}
        assert collected_weights(model_signature(model), lengths_of(3)) == expected


@pytest.mark.parametrize(
    "model",
    [
        lambda: greedy(*attending(), **OPTIONS),
        lambda: greedy(*recurrent(), **OPTIONS, outputs=["weights"]),
        lambda: beam(*attending(), **OPTIONS, outputs=["weights"]),
        lambda: recurrent()[0],
    ],
    ids=["that are not given", "of no layer", "of a beam", "of no decoder"],
)
def test_models_without_collected_weights_have_none(model):
    assert collected_weights(model_signature(model()), ids_of(3)) == {}


@pytest.mark.slow
def test_lengths_that_a_step_reads_count_the_ids():
    model = greedy(*with_lengths(AdditiveAttention(5)), **OPTIONS)
    golden = cases_of(model, lengths_of(3))
    assert golden.lengths == {"valid_lens": "ids_length"}
    assert {int(length) for case in golden.cases for length in case.inputs["valid_lens"]} >= {-1, 0, 1}
