"""One step of a cell with attention: what it computes, the states it hands on, and what it refuses."""

import keras
import numpy as np
import pytest
from attention_cell_cases import CELLS, UNITS, B, Dm, Dx, Tk, build_cell, draw_inputs, to_arrays
from keras import layers, ops
from layer_contract import draw_weights, save_and_load, to_float64
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn._layers.location_sensitive import LocationSensitiveAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN
from keras_attn.decoding import greedy

every_cell = pytest.mark.parametrize("name", CELLS)


def a_cell(cell=None, **options):
    cell = AttentionCell(cell or layers.SimpleRNNCell(UNITS), DotProductAttention(scale=1.0), **options)
    cell.build((None, Dx), None, (None, None, UNITS))
    draw_weights(cell)
    return cell


def step_inputs(seed=0):
    random = np.random.default_rng(seed)
    sizes = {"x": (B, Dx), "state": (B, UNITS), "memory": (B, Tk, UNITS)}
    return [random.normal(size=size).astype("float32") for size in sizes.values()]


def context_of(query, memory):
    powers = np.exp(np.einsum("bd,bkd->bk", query, memory))
    return np.einsum("bk,bkd->bd", powers / powers.sum(-1, keepdims=True), memory)


def simple_step(cell, inputs, state):
    kernels = (to_float64(getattr(cell.cell, name)) for name in ("kernel", "recurrent_kernel", "bias"))
    kernel, recurrent, bias = kernels
    return np.tanh(inputs @ kernel + state @ recurrent + bias)


@pytest.mark.parametrize("attention_size", [None, 5])
def test_before_queries_by_the_state_and_concatenates_context_and_input(attention_size):
    """An attention size joins it with what the step gave."""
    cell, (x, state, memory) = a_cell(attention_size=attention_size), step_inputs()
    output, (following,) = to_arrays(cell(x, [state], memory))
    context = context_of(state, memory)
    moved = simple_step(cell, np.concatenate([context, x], -1), state)
    assert_close(following, moved, "float32")
    if attention_size:
        joined = np.tanh(np.concatenate([context, moved], -1) @ to_float64(cell.W_c.kernel))
        assert_close(output, joined.astype("float32"), tolerance=1e-5)
    else:
        assert_close(output, moved, "float32")


def test_after_queries_by_the_new_state_and_outputs_context_and_state():
    cell, (x, state, memory) = a_cell(when="after"), step_inputs()
    output, (following,) = to_arrays(cell(x, [state], memory))
    expected = simple_step(cell, x, state)
    assert_close(following, expected, "float32")
    assert_close(output, np.concatenate([context_of(expected, memory), expected], -1), "float32")


@pytest.mark.parametrize("activation", ["tanh", None])
def test_input_feeding_passes_the_output_to_the_next_step(activation):
    cell = a_cell(when="after", attention_size=5, input_feeding=True, activation=activation)
    x, state, memory = step_inputs()
    fed = np.random.default_rng(1).normal(size=(B, 5)).astype("float32")
    output, (following, passed_on) = to_arrays(cell(x, [state, fed], memory))
    moved = simple_step(cell, np.concatenate([x, fed], -1), state)
    joined = np.concatenate([context_of(moved, memory), moved], -1) @ to_float64(cell.W_c.kernel)
    assert_close(following, moved, "float32")
    assert_close(output, np.float32(np.tanh(joined) if activation else joined), tolerance=1e-5)
    assert_identical(passed_on, output)


def test_stacked_cells_query_by_the_hidden_state_of_the_last():
    stacked = layers.StackedRNNCells([layers.GRUCell(3), layers.LSTMCell(UNITS)])
    cell, (x, hidden, memory) = a_cell(stacked), step_inputs()
    states = [np.zeros((B, 3), "float32"), hidden, np.ones((B, UNITS), "float32")]
    _, weights = to_arrays(cell(x, states, memory, return_attention_scores=True))
    powers = np.exp(np.einsum("bd,bkd->bk", hidden, memory))
    assert_close(weights, powers / powers.sum(-1, keepdims=True), "float32")


@pytest.mark.parametrize("cumulative", [False, True])
def test_previous_weights_are_a_state(cumulative):
    attention = LocationSensitiveAttention(8, 4, 3, cumulative=cumulative)
    cell, (x, state, memory) = AttentionCell(layers.GRUCell(UNITS), attention), step_inputs()
    cell.build((None, Dx), None, (None, None, UNITS))
    draw_weights(cell)
    states = cell.get_initial_state(memory=memory)
    assert_identical(to_arrays(states)[-1], np.zeros((B, Tk), "float32"))
    before = np.random.default_rng(3).random((B, Tk)).astype("float32")
    (_, following), weights = to_arrays(cell(x, [state, before], memory, return_attention_scores=True))
    _, expected = to_arrays(
        attention(state[:, None], memory, memory, previous_weights=before, return_attention_scores=True)
    )
    assert_close(weights, expected[:, 0], "float32")
    assert_close(following[-1], before + weights if cumulative else weights)


def assert_nested_close(found, expected):
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        assert_close(one, other, tolerance=1e-6)


@every_cell
def test_memory_mask_equals_lengths(name):
    cell, (inputs, memory), lengths = build_cell(name).cell, draw_inputs(), np.array([2, 4, 5])
    states, mask = cell.get_initial_state(memory=memory), np.arange(Tk) < lengths[:, None]
    dirty = np.where(mask[..., None], memory, np.float32(np.nan))
    by_lengths = to_arrays(cell(inputs[:, 0], states, memory, lengths, return_attention_scores=True))
    assert_nested_close(
        to_arrays(cell(inputs[:, 0], states, dirty, memory_mask=mask, return_attention_scores=True)), by_lengths
    )


@every_cell
def test_states_have_the_declared_sizes_and_dtypes(name):
    cell, (inputs, memory) = build_cell(name, dtype="mixed_float16").cell, draw_inputs()
    states = cell.get_initial_state(memory=memory)
    output, following = cell(inputs[:, 0], states, memory)
    assert output.shape == (B, cell.output_size)
    dtypes = [keras.backend.standardize_dtype(state.dtype) for state in following]
    assert dtypes == [keras.backend.standardize_dtype(state.dtype) for state in states] == cell.state_dtypes
    assert [state.shape[1] for state in following] == [Tk if size is None else size for size in cell.state_size]
    assert dtypes.count("float32") == (name == "location")  # sums of weights
    assert keras.backend.standardize_dtype(output.dtype) == "float16"


def decoder():
    """An encoder and a step on one trained cell, and the layer that ran it."""
    cell, embed = AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8)), layers.Embedding(9, Dx)
    rnn, answer, encode = AttentionRNN(cell), layers.Dense(9), layers.Embedding(11, Dm)
    ids = keras.Input((None,), dtype="int32", name="ids")
    before = keras.Input((None,), dtype="int32", name="before")
    training = keras.Model([ids, before], answer(rnn(embed(before), encode(ids))))

    memory = encode(ids)
    encoder = keras.Model(ids, cell.precompute(memory))
    token, state = keras.Input((), dtype="int32", name="token"), keras.Input((UNITS,), name="state")
    keys, values = keras.Input((None, 8), name="projected_keys"), keras.Input((None, Dm), name="projected_values")
    of_memory = {"projected_keys": keys, "projected_values": values}
    (output, (following,)), weights = cell(embed(token), [state], of_memory, return_attention_scores=True)
    step = keras.Model(
        [token, state, keys, values], {"logits": answer(output), "next_state": following, "weights": weights}
    )
    draw_weights(training, seed=4)
    return training, encoder, step


@pytest.mark.slow
def test_cell_of_a_trained_layer_decodes_step_by_step(tmp_path):
    training, encoder, step = decoder()
    model = greedy(encoder, step, {"next_state": "state"}, start=0, max_length=5, outputs=["weights"])
    ids = np.random.default_rng(0).integers(0, 11, (B, Tk))
    found = to_arrays(model({"ids": ids}))
    before = np.concatenate([np.zeros((B, 1), "int32"), found["tokens"][:, :-1]], axis=1)
    assert_identical(found["tokens"], to_arrays(training([ids, before])).argmax(-1).astype("int32"))
    assert found["weights"].shape == (B, 5, Tk)
    for each in (encoder, step):
        again = save_and_load(each, tmp_path)
        shapes = {tensor.name: [B, *(Tk if n is None else n for n in tensor.shape[1:])] for tensor in each.inputs}
        arguments = [np.ones(shapes[tensor.name], tensor.dtype) for tensor in each.inputs]
        arguments = arguments[0] if len(arguments) == 1 else arguments
        assert_nested_close(to_arrays(again(arguments)), to_arrays(each(arguments)))


def test_first_states_are_zeros():
    cell = a_cell(when="after", attention_size=5, input_feeding=True)
    states = to_arrays(cell.get_initial_state(batch_size=2))
    assert [state.shape for state in states] == [(2, UNITS), (2, 5)]
    assert not any(np.any(state) for state in states)
    assert ops.shape(cell.get_initial_state(memory=np.ones((4, Tk, UNITS)))[0]) == (4, UNITS)
