"""Layers that a model calls more than once, with more outputs later: all of them belong to the model."""

import keras
import numpy as np
import pytest
from keras import layers
from recurrent_cases import UNITS, B, Dm, Dx, T, Tk, arrays, inputs_of
from tolerances import assert_identical

from keras_attn import AdditiveAttention
from keras_attn._attention_cell import AttentionCell
from keras_attn._attention_rnn import AttentionRNN

inputs, memory = inputs_of()


def a_cell():
    return AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8))


def called_by(call):
    """A model of two calls, of which the second returns weights."""
    return [call(), call(return_attention_scores=True)[1]]


def of_a_layer(x, m):
    layer = AdditiveAttention(8)
    return called_by(lambda **options: layer(x, m, m, **options))


def of_a_loop(x, m):
    rnn = AttentionRNN(a_cell())
    return called_by(lambda **options: rnn(x, m, **options))


def of_a_cell(x, m):
    cell = a_cell()
    return called_by(lambda **options: cell(x[:, 0], [x[:, 1, :1] + np.zeros(UNITS, "float32")], m, **options))


@pytest.mark.parametrize("make", [of_a_layer, of_a_loop, of_a_cell])
def test_weights_of_a_second_call_are_outputs_of_the_model(make, tmp_path):
    x, m = keras.Input((T, Dx)), keras.Input((Tk, Dm))
    model = keras.Model([x, m], make(x, m))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = keras.tree.flatten(arrays(model([inputs, memory])))
    assert expected[-1].shape[0] == B
    for found, output in zip(keras.tree.flatten(arrays(again([inputs, memory]))), expected, strict=True):
        assert_identical(found, output)


def test_without_a_call_there_are_no_outputs():
    assert a_cell().output is None
