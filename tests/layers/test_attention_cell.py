"""One step of `AttentionCell`: outputs, next states, masks, and decoding with a trained cell."""

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


def build_dot_product_cell(cell=None, **options):
    cell = AttentionCell(cell or layers.SimpleRNNCell(UNITS), DotProductAttention(scale=1.0), **options)
    cell.build((None, Dx), None, (None, None, UNITS))
    draw_weights(cell)
    return cell


def draw_step_inputs(seed=0):
    """Return inputs (B, Dx), a state (B, UNITS) and a memory (B, Tk, UNITS)."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Dx), (B, UNITS), (B, Tk, UNITS))]


def compute_weights(query, memory):
    exponentials = np.exp(np.einsum("bd,bkd->bk", query, memory))
    return exponentials / exponentials.sum(-1, keepdims=True)


def compute_context(query, memory):
    return np.einsum("bk,bkd->bd", compute_weights(query, memory), memory)


def compute_simple_rnn_step(cell, inputs, state):
    kernel, recurrent_kernel, bias = map(to_float64, (cell.cell.kernel, cell.cell.recurrent_kernel, cell.cell.bias))
    return np.tanh(inputs @ kernel + state @ recurrent_kernel + bias)


@pytest.mark.parametrize("attention_size", [None, 5])
def test_attention_before_the_step_queries_with_the_state(attention_size):
    """With an attention size, the context and the new state are projected to the output."""
    cell, (x, state, memory) = build_dot_product_cell(attention_size=attention_size), draw_step_inputs()
    output, (next_state,) = to_arrays(cell(x, [state], memory))
    context = compute_context(state, memory)
    expected_state = compute_simple_rnn_step(cell, np.concatenate([context, x], -1), state)
    assert_close(next_state, expected_state, "float32")
    if attention_size:
        expected_output = np.tanh(np.concatenate([context, expected_state], -1) @ to_float64(cell.W_c.kernel))
        assert_close(output, expected_output.astype("float32"), tolerance=1e-5)
    else:
        assert_close(output, expected_state, "float32")


def test_attention_after_the_step_queries_with_the_new_state():
    cell, (x, state, memory) = build_dot_product_cell(when="after"), draw_step_inputs()
    output, (next_state,) = to_arrays(cell(x, [state], memory))
    expected = compute_simple_rnn_step(cell, x, state)
    assert_close(next_state, expected, "float32")
    assert_close(output, np.concatenate([compute_context(expected, memory), expected], -1), "float32")


@pytest.mark.parametrize("activation", ["tanh", None])
def test_input_feeding_adds_the_output_to_the_states(activation):
    cell = build_dot_product_cell(when="after", attention_size=5, input_feeding=True, activation=activation)
    x, state, memory = draw_step_inputs()
    fed_output = np.random.default_rng(1).normal(size=(B, 5)).astype("float32")
    output, (next_state, next_fed_output) = to_arrays(cell(x, [state, fed_output], memory))
    expected_state = compute_simple_rnn_step(cell, np.concatenate([x, fed_output], -1), state)
    features = np.concatenate([compute_context(expected_state, memory), expected_state], -1)
    expected = features @ to_float64(cell.W_c.kernel)
    assert_close(next_state, expected_state, "float32")
    assert_close(output, np.float32(np.tanh(expected) if activation else expected), tolerance=1e-5)
    assert_identical(next_fed_output, output)


def test_stacked_cells_query_with_the_hidden_state_of_the_last_cell():
    stacked_cells = layers.StackedRNNCells([layers.GRUCell(3), layers.LSTMCell(UNITS)])
    cell, (x, hidden, memory) = build_dot_product_cell(stacked_cells), draw_step_inputs()
    states = [np.zeros((B, 3), "float32"), hidden, np.ones((B, UNITS), "float32")]
    _, weights = to_arrays(cell(x, states, memory, return_attention_scores=True))
    assert_close(weights, compute_weights(hidden, memory), "float32")


@pytest.mark.parametrize("cumulative", [False, True])
def test_previous_weights_are_a_state(cumulative):
    attention = LocationSensitiveAttention(8, 4, 3, cumulative=cumulative)
    cell, (x, state, memory) = AttentionCell(layers.GRUCell(UNITS), attention), draw_step_inputs()
    cell.build((None, Dx), None, (None, None, UNITS))
    draw_weights(cell)
    states = cell.get_initial_state(memory=memory)
    assert_identical(to_arrays(states)[-1], np.zeros((B, Tk), "float32"))
    previous = np.random.default_rng(3).random((B, Tk)).astype("float32")
    (_, next_states), weights = to_arrays(cell(x, [state, previous], memory, return_attention_scores=True))
    _, expected = to_arrays(
        attention(state[:, None], memory, memory, previous_weights=previous, return_attention_scores=True)
    )
    assert_close(weights, expected[:, 0], "float32")
    assert_close(next_states[-1], previous + weights if cumulative else weights)


def assert_nested_close(actual, expected):
    for array, expected_array in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        assert_close(array, expected_array, tolerance=1e-6)


@every_cell
def test_memory_mask_equals_lengths(name):
    cell, (inputs, memory), lengths = build_cell(name).cell, draw_inputs(), np.array([2, 4, 5])
    states, mask = cell.get_initial_state(memory=memory), np.arange(Tk) < lengths[:, None]
    expected = cell(inputs[:, 0], states, memory, lengths, return_attention_scores=True)
    poisoned_memory = np.where(mask[..., None], memory, np.float32(np.nan))
    actual = cell(inputs[:, 0], states, poisoned_memory, memory_mask=mask, return_attention_scores=True)
    assert_nested_close(to_arrays(actual), to_arrays(expected))


@every_cell
def test_states_have_the_declared_sizes_and_dtypes(name):
    cell, (inputs, memory) = build_cell(name, dtype="mixed_float16").cell, draw_inputs()
    states = cell.get_initial_state(memory=memory)
    output, next_states = cell(inputs[:, 0], states, memory)
    assert output.shape == (B, cell.output_size)
    dtypes = [keras.backend.standardize_dtype(state.dtype) for state in next_states]
    assert dtypes == [keras.backend.standardize_dtype(state.dtype) for state in states] == cell.state_dtypes
    assert [state.shape[1] for state in next_states] == [Tk if size is None else size for size in cell.state_size]
    assert dtypes.count("float32") == (name == "location")  # its previous weights are summed
    assert keras.backend.standardize_dtype(output.dtype) == "float16"


def build_decoder_models():
    """Return a training model, and an encoder and a step with the same cell."""
    cell, embed_tokens = AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8)), layers.Embedding(9, Dx)
    rnn, output_layer, embed_ids = AttentionRNN(cell), layers.Dense(9), layers.Embedding(11, Dm)
    ids = keras.Input((None,), dtype="int32", name="ids")
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    training_model = keras.Model([ids, tokens], output_layer(rnn(embed_tokens(tokens), embed_ids(ids))))

    memory = embed_ids(ids)
    encoder = keras.Model(ids, cell.precompute(memory))
    token, state = keras.Input((), dtype="int32", name="token"), keras.Input((UNITS,), name="state")
    keys, values = keras.Input((None, 8), name="projected_keys"), keras.Input((None, Dm), name="projected_values")
    memory = {"projected_keys": keys, "projected_values": values}
    (output, (next_state,)), weights = cell(embed_tokens(token), [state], memory, return_attention_scores=True)
    outputs = {"logits": output_layer(output), "next_state": next_state, "weights": weights}
    step = keras.Model([token, state, keys, values], outputs)
    draw_weights(training_model, seed=4)
    return training_model, encoder, step


@pytest.mark.slow
def test_cell_of_a_trained_layer_decodes_step_by_step(tmp_path):
    training_model, encoder, step = build_decoder_models()
    model = greedy(encoder, step, {"next_state": "state"}, start=0, max_length=5, outputs=["weights"])
    ids = np.random.default_rng(0).integers(0, 11, (B, Tk))
    decoded = to_arrays(model({"ids": ids}))
    previous_tokens = np.concatenate([np.zeros((B, 1), "int32"), decoded["tokens"][:, :-1]], axis=1)
    assert_identical(decoded["tokens"], to_arrays(training_model([ids, previous_tokens])).argmax(-1).astype("int32"))
    assert decoded["weights"].shape == (B, 5, Tk)
    for model in (encoder, step):
        shapes = [[B, *(Tk if size is None else size for size in tensor.shape[1:])] for tensor in model.inputs]
        arguments = [np.ones(shape, tensor.dtype) for shape, tensor in zip(shapes, model.inputs, strict=True)]
        arguments = arguments[0] if len(arguments) == 1 else arguments
        assert_nested_close(to_arrays(save_and_load(model, tmp_path)(arguments)), to_arrays(model(arguments)))


def test_initial_states_are_zeros():
    cell = build_dot_product_cell(when="after", attention_size=5, input_feeding=True)
    states = to_arrays(cell.get_initial_state(batch_size=2))
    assert [state.shape for state in states] == [(2, UNITS), (2, 5)]
    assert not any(np.any(state) for state in states)
    assert ops.shape(cell.get_initial_state(memory=np.ones((4, Tk, UNITS)))[0]) == (4, UNITS)
