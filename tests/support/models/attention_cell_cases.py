"""Cells that attend, one of each kind, and their inputs: for the tests of `AttentionCell` and `AttentionRNN`."""

import keras
import numpy as np
from keras import layers
from layer_contract import draw_weights

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention
from keras_attn._layers.location_sensitive import LocationSensitiveAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN

B, T, Tk, Dx, Dm, UNITS = 3, 4, 5, 2, 7, 6
LENGTHS, INPUT_LENS = np.array([2, 5, 0]), np.array([1, 4, 3])

CELLS = {
    "bahdanau": lambda **o: AttentionCell(layers.GRUCell(UNITS, **o), AdditiveAttention(8, **o), **o),
    "luong": lambda **o: AttentionCell(
        layers.LSTMCell(UNITS, **o), BilinearAttention(**o), when="after", attention_size=9, input_feeding=True, **o
    ),
    "location": lambda **o: AttentionCell(
        layers.StackedRNNCells([layers.GRUCell(3, **o), layers.LSTMCell(UNITS, **o)], **o),
        LocationSensitiveAttention(8, 4, 3, cumulative=True, **o),
        input_feeding=True,
        **o,
    ),
    "heads": lambda **o: AttentionCell(
        layers.SimpleRNNCell(UNITS, **o), MultiHeadAttention(DotProductAttention(**o), 2, 3, **o), when="after", **o
    ),
}


def build_cell(name, **options):
    """The layer over a cell, built, with random weights."""
    rnn = AttentionRNN(CELLS[name](**options), **{"return_state": True, **options})
    rnn.build((None, None, Dx), (None, None, Dm))
    draw_weights(rnn)
    for variable in rnn.trainable_variables:  # so that no gate is shut
        variable.assign(variable / 2)
    return rnn


def draw_inputs(seed=0, batch=B, steps=T, places=Tk):
    random = np.random.default_rng(seed)
    return [random.normal(size=(batch, *size)).astype("float32") for size in ((steps, Dx), (places, Dm))]


def call_step_by_step(cell, inputs, memory, valid_lens=None, states=None):
    """Outputs, weights and states by single steps with the memory as it is, as arrays."""
    states, outputs, weights = states or cell.get_initial_state(memory=memory), [], []
    for x in np.moveaxis(inputs, 1, 0):
        (output, states), found = cell(x, states, memory, valid_lens, return_attention_scores=True)
        outputs.append(to_arrays(output))
        weights.append(to_arrays(found))
    return np.stack(outputs, 1), np.stack(weights, -2), to_arrays(states)


def to_arrays(tensors):
    return keras.tree.map_structure(keras.ops.convert_to_numpy, tensors)


def build_functional_model(name, **options):
    """A model around the layer, with lengths of both sides."""
    inputs, memory = keras.Input((T, Dx), name="inputs"), keras.Input((Tk, Dm), name="memory")
    lengths, input_lens = (keras.Input((), dtype="int32", name=n) for n in ("lengths", "input_lens"))
    rnn = AttentionRNN(CELLS[name](**options), return_state=True, name="decode")
    (outputs, *_), weights = rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)
    return keras.Model([inputs, memory, lengths, input_lens], {"outputs": outputs, "weights": weights})


def draw_model_inputs():
    return [*draw_inputs(), LENGTHS, INPUT_LENS]
