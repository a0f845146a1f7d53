"""Attention cells of every kind and their inputs, for the tests of `AttentionCell` and `AttentionRNN`."""

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
    "bahdanau": lambda **kw: AttentionCell(layers.GRUCell(UNITS, **kw), AdditiveAttention(8, **kw), **kw),
    "luong": lambda **kw: AttentionCell(
        layers.LSTMCell(UNITS, **kw), BilinearAttention(**kw), when="after", attention_size=9, input_feeding=True, **kw
    ),
    "location": lambda **kw: AttentionCell(
        layers.StackedRNNCells([layers.GRUCell(3, **kw), layers.LSTMCell(UNITS, **kw)], **kw),
        LocationSensitiveAttention(8, 4, 3, cumulative=True, **kw),
        input_feeding=True,
        **kw,
    ),
    "heads": lambda **kw: AttentionCell(
        layers.SimpleRNNCell(UNITS, **kw), MultiHeadAttention(DotProductAttention(**kw), 2, 3, **kw), when="after", **kw
    ),
}


def build_cell(name, **options):
    """Build an `AttentionRNN` over a cell, with random weights."""
    rnn = AttentionRNN(CELLS[name](**options), **{"return_state": True, **options})
    rnn.build((None, None, Dx), (None, None, Dm))
    draw_weights(rnn)
    for variable in rnn.trainable_variables:  # large weights would saturate the gates
        variable.assign(variable / 2)
    return rnn


def draw_inputs(seed=0, batch=B, steps=T, memory_length=Tk):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(batch, *shape)).astype("float32") for shape in ((steps, Dx), (memory_length, Dm))]


def call_step_by_step(cell, inputs, memory, valid_lens=None, states=None):
    """Return outputs, weights and states of a cell that is called once per step, as arrays."""
    states, outputs, weights = states or cell.get_initial_state(memory=memory), [], []
    for x in np.moveaxis(inputs, 1, 0):
        (output, states), step_weights = cell(x, states, memory, valid_lens, return_attention_scores=True)
        outputs.append(to_arrays(output))
        weights.append(to_arrays(step_weights))
    return np.stack(outputs, 1), np.stack(weights, -2), to_arrays(states)


def to_arrays(tensors):
    return keras.tree.map_structure(keras.ops.convert_to_numpy, tensors)


def build_functional_model(name, **options):
    """Build a model of an `AttentionRNN` with lengths of the inputs and of the memory."""
    inputs, memory = keras.Input((T, Dx), name="inputs"), keras.Input((Tk, Dm), name="memory")
    lengths, input_lens = (keras.Input((), dtype="int32", name=name) for name in ("lengths", "input_lens"))
    rnn = AttentionRNN(CELLS[name](**options), return_state=True, name="decode")
    (outputs, *_), weights = rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)
    return keras.Model([inputs, memory, lengths, input_lens], {"outputs": outputs, "weights": weights})


def draw_model_inputs():
    return [*draw_inputs(), LENGTHS, INPUT_LENS]
