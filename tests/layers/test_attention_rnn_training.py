"""Training of cells with attention: every weight learns, and what is dropped at which step."""

import keras
import numpy as np
import pytest
from backends import FIT_MODES, compiled
from contract_cases import as_numpy, randomise
from keras import layers, ops
from recurrent_cases import UNITS, B, T, arrays, functional, model_inputs
from tolerances import assert_close

from keras_attn import BilinearAttention, DotProductAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN


def in_turn(*names):
    """Each cell with one mode."""
    modes = [*FIT_MODES.values()]
    return pytest.mark.parametrize(
        ("name", "jit_compile"), [(name, modes[n % len(modes)]) for n, name in enumerate(names)]
    )


@pytest.mark.slow
@in_turn("location", "luong")
def test_fit_with_dropout_changes_every_weight(name, jit_compile):
    model = functional(name)
    rnn = model.get_layer("decode")
    attention = rnn.cell.attention
    options = {**attention.get_config(), "dropout": 0.3, "seed": 3}
    cell = layers.LSTMCell(UNITS, dropout=0.2, recurrent_dropout=0.2, seed=4)
    rnn = AttentionRNN(AttentionCell(cell, type(attention).from_config(options), when=rnn.cell.when))
    inputs, memory, lengths, input_lens = (keras.Input(each.shape[1:], dtype=each.dtype) for each in model.inputs)
    model = keras.Model([inputs, memory, lengths, input_lens], rnn(inputs, memory, lengths, input_lens=input_lens))
    before = [as_numpy(variable) for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    history = model.fit(model_inputs(), np.ones((B, T, rnn.cell.output_size)), epochs=3, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert np.any(as_numpy(variable) != old), variable.path


@in_turn("location", "bahdanau", "heads")
def test_fit_without_masks(name, jit_compile):
    """XLA takes the gradient of a projection in the loop."""
    made_of = functional(name).get_layer("decode").cell
    inputs, memory, *_ = model_inputs()
    x, m = (keras.Input((None, each.shape[-1])) for each in (inputs, memory))
    model = keras.Model([x, m], layers.Dense(1)(AttentionRNN(made_of)(x, m)))
    before = as_numpy(made_of.attention.W_q.kernel)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    model.fit([inputs, memory], inputs[..., :1], verbose=0)
    after = as_numpy(made_of.attention.W_q.kernel)
    assert np.isfinite(after).all()
    assert np.any(after != before)


def drawn(rnn, mode, steps=6):
    """Outputs in training for the same input at each step, and those of the call after it."""
    inputs, memory = np.ones((2, steps, 1), "float32"), np.ones((2, 40, 3), "float32")
    rnn(inputs, memory)
    if mode is None:
        return arrays([rnn(inputs, memory, training=True) for _ in range(2)])
    seeds = rnn.non_trainable_variables
    if keras.backend.backend() != "jax":
        program = compiled(lambda x, m: rnn(x, m, training=True), mode)
        return arrays([program(*map(ops.convert_to_tensor, (inputs, memory))) for _ in range(2)])
    return _drawn_under_jit(rnn, inputs, memory, seeds)


def _drawn_under_jit(rnn, inputs, memory, seeds):
    import jax

    trained = rnn.trainable_variables

    @jax.jit
    def program(states):
        outputs, states = rnn.stateless_call([v.value for v in trained], states, inputs, memory, training=True)
        return outputs, states

    first, states = program([seed.value for seed in seeds])
    second, _ = program(states)
    return arrays([first, second])


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, *(mode for mode in FIT_MODES if mode != "eager")], ids=str)
def test_weights_are_dropped_anew_at_each_step_and_in_each_call(mode):
    rnn = AttentionRNN(AttentionCell(layers.SimpleRNNCell(3), DotProductAttention(0.5, seed=1), when="after"))
    first, second = drawn(rnn, mode)
    contexts = first[0, :, 0]  # of a memory of ones: the sum of the weights that were not dropped
    assert len(set(contexts.tolist())) > 1
    assert np.any(first != second)


@pytest.mark.parametrize("mode", [None, *(mode for mode in FIT_MODES if mode != "eager")], ids=str)
def test_the_cell_drops_the_same_units_at_each_step_and_others_in_each_call(mode):
    cell = layers.SimpleRNNCell(20, dropout=0.5, recurrent_initializer="zeros", seed=1)
    rnn = AttentionRNN(AttentionCell(cell, BilinearAttention()))
    first, second = drawn(rnn, mode)
    assert_close(first, np.repeat(first[:, :1], 6, axis=1), "float32")
    assert np.any(first != second)
    assert cell._dropout_mask is None  # nothing of a call is left


def test_draws_of_steps_are_those_of_steps_one_by_one():
    def made_anew():
        attention = DotProductAttention(0.5, seed=1)
        rnn = AttentionRNN(AttentionCell(layers.SimpleRNNCell(3), attention, when="after", activation=None))
        rnn.build((None, None, 1), (None, None, 3))
        randomise(rnn)
        return rnn

    inputs, memory = np.ones((2, 4, 1), "float32"), np.ones((2, 40, 3), "float32")
    looped = arrays(made_anew()(inputs, memory, training=True))
    cell = made_anew().cell
    states, outputs = cell.get_initial_state(memory=memory), []
    if keras.backend.backend() != "jax":  # Keras's loop takes the first step once more, to see what it gives
        cell(inputs[:, 0], states, memory, training=True)
    for step in range(4):
        output, states = cell(inputs[:, step], states, memory, training=True)
        outputs.append(arrays(output))
    assert_close(looped, np.stack(outputs, 1), "float32")
