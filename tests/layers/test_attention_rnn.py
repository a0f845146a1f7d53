"""`AttentionRNN`: equality with single steps of its cell, masked steps, training, dropout and saved files."""

from functools import partial

import attention_cell_cases
import keras
import numpy as np
import pytest
from attention_cell_cases import (
    CELLS,
    INPUT_LENS,
    LENGTHS,
    UNITS,
    B,
    Dm,
    Dx,
    T,
    Tk,
    build_cell,
    call_step_by_step,
    draw_inputs,
    to_arrays,
)
from backends import COMPILED_MODES, FIT_MODES, MODES, compile_function, read_mask
from keras import layers, ops
from layer_contract import draw_weights, save_and_load, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN

every_cell = pytest.mark.parametrize("name", CELLS)


def build_gru_cell(**options):
    return AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8), **options)


def compute_outputs(rnn, *inputs, **options):
    """Return outputs, weights and states as arrays."""
    (outputs, *states), weights = to_arrays(rnn(*inputs, return_attention_scores=True, **options))
    return outputs, weights, states


@every_cell
def test_loop_equals_single_steps(name):
    rnn, (inputs, memory) = build_cell(name), draw_inputs()
    outputs, weights, states = compute_outputs(rnn, inputs, memory, LENGTHS)
    expected_outputs, expected_weights, expected_states = call_step_by_step(rnn.cell, inputs, memory, LENGTHS)
    assert_close(outputs, expected_outputs, tolerance=1e-5)
    assert_close(weights, expected_weights, tolerance=1e-5)
    for state, expected in zip(states, expected_states, strict=True):
        assert_close(state, expected, tolerance=1e-5)
    assert not np.any(weights[2])
    assert np.any(outputs[0, 1] != outputs[0, 2])


@every_cell
def test_masked_steps_keep_the_states_and_return_zeros(name):
    rnn, (inputs, memory) = build_cell(name), draw_inputs()
    mask = np.arange(T) < INPUT_LENS[:, None]
    options = {"inputs_mask": mask} if name in ("luong", "heads") else {"input_lens": INPUT_LENS}
    outputs, weights, states = compute_outputs(rnn, inputs, memory, LENGTHS, **options)
    (masked_outputs, *_), _ = rnn(inputs, memory, LENGTHS, return_attention_scores=True, **options)
    assert_identical(to_arrays(read_mask(masked_outputs)), mask)
    assert not np.any(outputs[~mask])
    assert not np.any(np.moveaxis(weights, -2, 1)[~mask])
    for row, steps in enumerate(INPUT_LENS):
        rows = slice(row, row + 1)
        row_outputs, row_weights, row_states = compute_outputs(rnn, inputs[rows, :steps], memory[rows], LENGTHS[rows])
        assert_close(outputs[rows, :steps], row_outputs, tolerance=1e-5)
        assert_close(weights[rows, ..., :steps, :], row_weights, tolerance=1e-5)
        for state, expected in zip(states, row_states, strict=True):
            assert_close(state[rows], expected, tolerance=1e-5)


def test_step_in_the_middle_may_be_masked():
    rnn, (inputs, memory) = build_cell("bahdanau"), draw_inputs()
    mask = np.array([[True, False, True, True]] * B)
    outputs, _, (state,) = compute_outputs(rnn, inputs, memory, inputs_mask=mask)
    expected_outputs, _, (expected_state,) = compute_outputs(rnn, inputs[:, [0, 2, 3]], memory)
    assert_close(outputs[:, [0, 2, 3]], expected_outputs, tolerance=1e-5)
    assert_close(state, expected_state, tolerance=1e-5)


@pytest.mark.parametrize("lens", [None, INPUT_LENS, np.array([0, 2, 4])], ids=["all", "some", "none of a row"])
def test_last_output_belongs_to_the_last_unmasked_step(lens):
    rnn, (inputs, memory) = build_cell("luong"), draw_inputs()
    outputs, _, _ = compute_outputs(rnn, inputs, memory, input_lens=lens)
    rnn.return_sequences = False
    last_outputs, weights, _ = compute_outputs(rnn, inputs, memory, input_lens=lens)
    assert last_outputs.shape == (B, 9)
    assert weights.shape == (B, T, Tk)
    for row, steps in enumerate([T] * B if lens is None else lens):
        assert_identical(last_outputs[row], outputs[row, steps - 1] if steps else np.zeros(9, "float32"))


def test_masks_of_embeddings_apply_and_reach_the_outputs():
    ids = np.array([[3, 4, 0, 0], [1, 2, 3, 4], [5, 0, 0, 0]])
    memory_ids = np.array([[1, 2, 0], [1, 0, 0], [1, 2, 3]])
    inputs, memory = (layers.Embedding(9, size, mask_zero=True)(x) for size, x in ((Dx, ids), (Dm, memory_ids)))
    rnn = build_cell("bahdanau")
    outputs, *_ = rnn(inputs, memory)
    assert_identical(to_arrays(read_mask(outputs)), ids != 0)
    assert read_mask(rnn(*draw_inputs())[0]) is None
    expected, *_ = rnn(to_arrays(inputs), to_arrays(memory), np.array([2, 1, 3]), input_lens=np.array([2, 4, 1]))
    assert_close(to_arrays(outputs), to_arrays(expected), "float32")


@every_cell
def test_memory_is_projected_once(name, monkeypatch):
    rnn, (inputs, memory) = build_cell(name), draw_inputs()
    expected, projections = compute_outputs(rnn, inputs, memory)[0], []
    call_dense = layers.Dense.call

    def record_projection(dense, x, *args, **kwargs):
        if x.shape[-1] == Dm:
            projections.append(dense.name)
        return call_dense(dense, x, *args, **kwargs)

    monkeypatch.setattr(layers.Dense, "call", record_projection)
    assert_identical(compute_outputs(rnn, inputs, memory)[0], expected)
    assert projections == {"bahdanau": ["W_k"], "location": ["W_k"], "luong": ["W"], "heads": ["W_k", "W_v"]}[name]
    assert_close(compute_outputs(rnn, inputs, rnn.cell.precompute(memory))[0], expected)


def test_initial_state_may_omit_the_fed_output():
    rnn, (inputs, memory) = build_cell("luong"), draw_inputs()
    rng = np.random.default_rng(1)
    hidden, carry = (rng.normal(size=(B, UNITS)).astype("float32") for _ in range(2))
    outputs, _, _ = compute_outputs(rnn, inputs, memory, initial_state=[hidden, carry])
    fed_output = np.zeros((B, 9), "float32")
    assert_identical(compute_outputs(rnn, inputs, memory, initial_state=[hidden, carry, fed_output])[0], outputs)
    expected, _, _ = call_step_by_step(rnn.cell, inputs, memory, states=[hidden, carry, fed_output])
    assert_close(outputs, expected, tolerance=1e-5)
    gru = build_cell("bahdanau")
    outputs, _, _ = compute_outputs(gru, inputs, memory, initial_state=hidden)
    assert_identical(compute_outputs(gru, inputs, memory, initial_state=[hidden])[0], outputs)
    assert np.any(outputs != compute_outputs(gru, inputs, memory)[0])


class MinimalCell(layers.Layer):
    """Recurrent cell without `get_initial_state` and `output_size`."""

    state_size = UNITS

    def call(self, x, states):
        state = ops.tanh(states[0] + ops.sum(x, axis=-1, keepdims=True))
        return state, [state]


def test_cell_without_initial_states_begins_with_zeros():
    rnn, (inputs, memory) = AttentionRNN(AttentionCell(MinimalCell(), AdditiveAttention(8))), draw_inputs()
    expected = rnn(inputs, memory, initial_state=np.zeros((B, UNITS), "float32"))
    assert_identical(to_arrays(rnn(inputs, memory)), to_arrays(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [(name, COMPILED_MODES[n % len(COMPILED_MODES)]) for n, name in enumerate(CELLS)]
)
def test_one_program_accepts_every_size(name, mode):
    rnn = build_cell(name)
    signature = [((None, None, Dx), "float32"), ((None, None, Dm), "float32"), ((None,), "int32"), ((None,), "int32")]
    if mode == "xla":  # XLA compiles loops only with a static number of steps
        signature = [((B, T, Dx), "float32"), ((B, Tk, Dm), "float32"), ((B,), "int32"), ((B,), "int32")]

    def decode(inputs, memory, lengths, input_lens):
        return rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)

    program = compile_function(decode, mode, signature=signature)
    for batch, steps, keys in [(B, T, Tk)] if mode == "xla" else [(B, T, Tk), (2, 1, 3)]:
        lengths = (lens[:batch].astype("int32") for lens in (LENGTHS, INPUT_LENS))
        arrays = [*draw_inputs(0, batch, steps, keys), *lengths]
        results = program(*map(ops.convert_to_tensor, arrays)), decode(*arrays)
        for output, expected in zip(*(keras.tree.flatten(to_arrays(result)) for result in results), strict=True):
            assert_close(output, expected, tolerance=1e-5)


STATIC_SIZES = {"nothing": (None, None, None), "batch": (B, None, None), "everything": (B, T, Tk)}  # batch, T, Tk
SYMBOLIC_CASES = [(name, sizes, n % 2 == 0) for m, name in enumerate(CELLS) for n, sizes in enumerate(STATIC_SIZES, m)]


@pytest.mark.parametrize(("name", "sizes", "sequences"), SYMBOLIC_CASES)
def test_symbolic_shapes_and_dtypes_equal_those_of_the_result(name, sizes, sequences):
    batch, steps, keys = STATIC_SIZES[sizes]
    rnn = AttentionRNN(CELLS[name](), return_sequences=sequences, return_state=True)
    input_shapes = (batch, steps, Dx), (batch, keys, Dm)
    shapes_before_build = rnn.compute_output_shape(*input_shapes, return_attention_scores=True)
    assert not rnn.cell.built
    symbolic_results = rnn(*(keras.Input(batch_shape=shape) for shape in input_shapes), return_attention_scores=True)
    (outputs, *states), weights = symbolic_results
    assert outputs.shape == ((batch, steps, rnn.cell.output_size) if sequences else (batch, rnn.cell.output_size))
    assert weights.shape == ((batch, 2, steps, keys) if name == "heads" else (batch, steps, keys))
    assert [state.shape for state in states] == [
        (batch, keys if size is None else size) for size in rnn.cell.state_size
    ]
    expected = keras.tree.flatten([tensor.shape for tensor in keras.tree.flatten(symbolic_results)])
    for shapes in (shapes_before_build, rnn.compute_output_shape(*input_shapes, return_attention_scores=True)):
        assert keras.tree.flatten(shapes) == expected
    results = rnn(*draw_inputs(), return_attention_scores=True)
    for tensor, result in zip(keras.tree.flatten(symbolic_results), keras.tree.flatten(results), strict=True):
        assert tensor.dtype == keras.backend.standardize_dtype(result.dtype)
        assert all(size in (None, actual) for size, actual in zip(tensor.shape, result.shape, strict=True))


def test_model_of_a_precomputed_memory_is_saved_and_loaded(tmp_path):
    """The file has no shape of a memory tensor: the cell is built for the shape that it was saved with."""
    rnn = build_cell("bahdanau")
    inputs = [keras.Input((None, Dx)), keras.Input((None, 8)), keras.Input((None, Dm))]
    outputs, _ = rnn(inputs[0], {"projected_keys": inputs[1], "projected_values": inputs[2]})
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    x, memory = draw_inputs()
    arrays = [x, *to_arrays([*rnn.cell.precompute(memory).values()])]
    assert_identical(to_arrays(keras.saving.load_model(tmp_path / "model.keras")(arrays)), to_arrays(model(arrays)))


def test_two_layers_may_share_a_cell():
    """For example in a translator that decodes one memory twice."""
    cell, (inputs, memory) = build_gru_cell(), draw_inputs()
    sequence_rnn, last_output_rnn = AttentionRNN(cell), AttentionRNN(cell, return_sequences=False)
    assert_identical(to_arrays(sequence_rnn(inputs, memory))[:, -1], to_arrays(last_output_rnn(inputs, memory)))


def quantize(model):
    model.quantize("int8")


def enable_lora(model):
    cell = model.get_layer("decode").cell
    for dense in (cell.attention.W_q, cell.attention.W_k, cell.W_c):
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # of Keras's InputLayer
@pytest.mark.parametrize("change", [quantize, enable_lora])
def test_quantized_and_lora_kernels_are_saved(change, tmp_path):
    x, m = keras.Input((None, Dx)), keras.Input((None, Dm))
    model = keras.Model([x, m], AttentionRNN(build_gru_cell(when="after", attention_size=8), name="decode")(x, m))
    draw_weights(model)
    original_outputs = to_arrays(model(draw_inputs()))
    change(model)
    expected_outputs = to_arrays(model(draw_inputs()))
    assert np.any(expected_outputs != original_outputs)
    for _ in range(2):
        model = save_and_load(model, tmp_path)
        assert_identical(to_arrays(model(draw_inputs())), expected_outputs)
    if change is quantize:
        assert model.get_layer("decode").cell.W_c.quantization_mode == "int8"


def test_second_call_may_return_weights(tmp_path):
    """A later call of a shared layer may return more outputs than the first."""
    x, m = keras.Input((T, Dx)), keras.Input((Tk, Dm))
    call = partial(AttentionRNN(build_gru_cell()), x, m)
    model = keras.Model([x, m], [call(), call(return_attention_scores=True)[1]])
    loaded = save_and_load(model, tmp_path)
    expected = keras.tree.flatten(to_arrays(model(draw_inputs())))
    assert expected[-1].shape[0] == B
    for output, expected_output in zip(keras.tree.flatten(to_arrays(loaded(draw_inputs()))), expected, strict=True):
        assert_identical(output, expected_output)


def parametrize_fit(*names):
    """Parametrize a test with cells and, in turn, one mode of `fit` for each cell."""
    modes = [*FIT_MODES.values()]
    return pytest.mark.parametrize(
        ("name", "jit_compile"), [(name, modes[n % len(modes)]) for n, name in enumerate(names)]
    )


@pytest.mark.slow
@parametrize_fit("location", "luong")
def test_fit_with_dropout_changes_every_weight(name, jit_compile):
    model = attention_cell_cases.build_functional_model(name)
    rnn = model.get_layer("decode")
    attention = rnn.cell.attention
    options = {**attention.get_config(), "dropout": 0.3, "seed": 3}
    cell = layers.LSTMCell(UNITS, dropout=0.2, recurrent_dropout=0.2, seed=4)
    rnn = AttentionRNN(AttentionCell(cell, type(attention).from_config(options), when=rnn.cell.when))
    inputs, memory, lengths, input_lens = (keras.Input(x.shape[1:], dtype=x.dtype) for x in model.inputs)
    model = keras.Model([inputs, memory, lengths, input_lens], rnn(inputs, memory, lengths, input_lens=input_lens))
    initial_values = [to_numpy(variable) for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    history = model.fit(
        attention_cell_cases.draw_model_inputs(), np.ones((B, T, rnn.cell.output_size)), epochs=3, verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()
    for variable, initial_value in zip(model.trainable_variables, initial_values, strict=True):
        assert np.any(to_numpy(variable) != initial_value), variable.path


@pytest.mark.slow
@parametrize_fit("location", "bahdanau", "heads")
def test_fit_without_masks_changes_weights(name, jit_compile):
    """XLA differentiates a projection inside the loop."""
    cell = attention_cell_cases.build_functional_model(name).get_layer("decode").cell
    inputs, memory, *_ = attention_cell_cases.draw_model_inputs()
    x, m = (keras.Input((None, array.shape[-1])) for array in (inputs, memory))
    model = keras.Model([x, m], layers.Dense(1)(AttentionRNN(cell)(x, m)))
    initial_kernel = to_numpy(cell.attention.W_q.kernel)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    model.fit([inputs, memory], inputs[..., :1], verbose=0)
    kernel = to_numpy(cell.attention.W_q.kernel)
    assert np.isfinite(kernel).all()
    assert np.any(kernel != initial_kernel)


# A program of JAX contains the state of a seed as a constant; `fit` passes the state as an argument.
every_random_mode = pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "jit"])


def compute_training_outputs(rnn, mode, steps=6):
    """Return the outputs of two calls in training mode, with equal inputs at all steps."""
    inputs, memory = np.ones((2, steps, 1), "float32"), np.ones((2, 40, 3), "float32")
    rnn(inputs, memory)
    program = compile_function(lambda x, m: rnn(x, m, training=True), mode)
    return to_arrays([program(*map(ops.convert_to_tensor, (inputs, memory))) for _ in range(2)])


@pytest.mark.slow
@every_random_mode
def test_attention_dropout_differs_between_steps_and_calls(mode):
    rnn = AttentionRNN(AttentionCell(layers.SimpleRNNCell(3), DotProductAttention(0.5, seed=1), when="after"))
    first_outputs, second_outputs = compute_training_outputs(rnn, mode)
    contexts = first_outputs[0, :, 0]  # the memory is ones: a context is the sum of the weights that were not dropped
    assert len(set(contexts.tolist())) > 1
    assert np.any(first_outputs != second_outputs)


@every_random_mode
def test_cell_dropout_is_equal_at_each_step_and_differs_between_calls(mode):
    cell = layers.SimpleRNNCell(20, dropout=0.5, recurrent_initializer="zeros", seed=1)
    rnn = AttentionRNN(AttentionCell(cell, BilinearAttention()))
    first_outputs, second_outputs = compute_training_outputs(rnn, mode)
    assert_close(first_outputs, np.repeat(first_outputs[:, :1], 6, axis=1), "float32")
    assert np.any(first_outputs != second_outputs)
    assert cell._dropout_mask is None  # a cached mask would be used again in the next call


@every_cell
def test_half_precision_is_close_to_float32(name):
    inputs, memory = draw_inputs()
    options = {"input_lens": INPUT_LENS}
    expected, _, _ = compute_outputs(build_cell(name), inputs, memory, LENGTHS, **options)
    outputs, weights, _ = compute_outputs(build_cell(name, dtype="mixed_float16"), inputs, memory, LENGTHS, **options)
    assert outputs.dtype == weights.dtype == "float16"
    np.testing.assert_allclose(outputs, expected, atol=2e-2)


def test_dropout_of_the_loop_equals_dropout_of_single_steps():
    def build_dropout_rnn():
        attention = DotProductAttention(0.5, seed=1)
        rnn = AttentionRNN(AttentionCell(layers.SimpleRNNCell(3), attention, when="after", activation=None))
        rnn.build((None, None, 1), (None, None, 3))
        draw_weights(rnn)
        return rnn

    inputs, memory = np.ones((2, 4, 1), "float32"), np.ones((2, 40, 3), "float32")
    actual = to_arrays(build_dropout_rnn()(inputs, memory, training=True))
    cell = build_dropout_rnn().cell
    states, outputs = cell.get_initial_state(memory=memory), []
    if keras.backend.backend() != "jax":  # Keras's loop runs the first step twice: first for the output's structure
        cell(inputs[:, 0], states, memory, training=True)
    for step in range(4):
        output, states = cell(inputs[:, step], states, memory, training=True)
        outputs.append(to_arrays(output))
    assert_close(actual, np.stack(outputs, 1), "float32")
