"""The loop around a cell with attention: equality with single steps, padding, training and dropout."""

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


def a_cell(**options):
    return AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8), **options)


def run(rnn, *inputs, **options):
    """Outputs, weights and states, as arrays."""
    (outputs, *states), weights = to_arrays(rnn(*inputs, return_attention_scores=True, **options))
    return outputs, weights, states


@every_cell
def test_loop_equals_its_steps_one_by_one(name):
    rnn, (inputs, memory) = build_cell(name), draw_inputs()
    outputs, weights, states = run(rnn, inputs, memory, LENGTHS)
    by_hand = call_step_by_step(rnn.cell, inputs, memory, LENGTHS)
    assert_close(outputs, by_hand[0], tolerance=1e-5)
    assert_close(weights, by_hand[1], tolerance=1e-5)
    for found, expected in zip(states, by_hand[2], strict=True):
        assert_close(found, expected, tolerance=1e-5)
    assert not np.any(weights[2])
    assert np.any(outputs[0, 1] != outputs[0, 2])


@every_cell
def test_masked_steps_keep_the_states_and_give_zeros(name):
    rnn, (inputs, memory) = build_cell(name), draw_inputs()
    kept = np.arange(T) < INPUT_LENS[:, None]
    options = {"inputs_mask": kept} if name in ("luong", "heads") else {"input_lens": INPUT_LENS}
    outputs, weights, states = run(rnn, inputs, memory, LENGTHS, **options)
    (carrying, *_), _ = rnn(inputs, memory, LENGTHS, return_attention_scores=True, **options)
    assert_identical(to_arrays(read_mask(carrying)), kept)
    assert not np.any(outputs[~kept])
    assert not np.any(np.moveaxis(weights, -2, 1)[~kept])
    for row, steps in enumerate(INPUT_LENS):
        rows = slice(row, row + 1)
        alone = run(rnn, inputs[rows, :steps], memory[rows], LENGTHS[rows])
        assert_close(outputs[rows, :steps], alone[0], tolerance=1e-5)
        assert_close(weights[rows, ..., :steps, :], alone[1], tolerance=1e-5)
        for found, expected in zip(states, alone[2], strict=True):
            assert_close(found[rows], expected, tolerance=1e-5)


def test_step_in_the_middle_may_be_masked():
    rnn, (inputs, memory) = build_cell("bahdanau"), draw_inputs()
    kept = np.array([[True, False, True, True]] * B)
    outputs, _, (state,) = run(rnn, inputs, memory, inputs_mask=kept)
    without, _, (expected,) = run(rnn, inputs[:, [0, 2, 3]], memory)
    assert_close(outputs[:, [0, 2, 3]], without, tolerance=1e-5)
    assert_close(state, expected, tolerance=1e-5)


@pytest.mark.parametrize("lens", [None, INPUT_LENS, np.array([0, 2, 4])], ids=["all", "some", "none of a row"])
def test_last_output_is_that_of_the_last_unmasked_step(lens):
    rnn, (inputs, memory) = build_cell("luong"), draw_inputs()
    whole, _, _ = run(rnn, inputs, memory, input_lens=lens)
    rnn.return_sequences = False
    last, weights, _ = run(rnn, inputs, memory, input_lens=lens)
    assert last.shape == (B, 9)
    assert weights.shape == (B, T, Tk)
    for row, steps in enumerate([T] * B if lens is None else lens):
        assert_identical(last[row], whole[row, steps - 1] if steps else np.zeros(9, "float32"))


def test_masks_of_embeddings_are_read_and_carried_on():
    embed = layers.Embedding(9, Dx, mask_zero=True)
    ids, words = np.array([[3, 4, 0, 0], [1, 2, 3, 4], [5, 0, 0, 0]]), np.array([[1, 2, 0], [1, 0, 0], [1, 2, 3]])
    encode, rnn = layers.Embedding(9, Dm, mask_zero=True), build_cell("bahdanau")
    outputs, *_ = rnn(embed(ids), encode(words))
    assert_identical(to_arrays(read_mask(outputs)), ids != 0)
    assert read_mask(rnn(*draw_inputs())[0]) is None
    expected, *_ = rnn(
        to_arrays(embed(ids)), to_arrays(encode(words)), np.array([2, 1, 3]), input_lens=np.array([2, 4, 1])
    )
    assert_close(to_arrays(outputs), to_arrays(expected), "float32")


@every_cell
def test_memory_is_projected_once(name, monkeypatch):
    rnn, (inputs, memory) = build_cell(name), draw_inputs()
    expected, shapes = run(rnn, inputs, memory)[0], []
    kind = keras.layers.Dense
    original = kind.call

    def call(dense, x, *others, **options):
        if x.shape[-1] == Dm:
            shapes.append(dense.name)
        return original(dense, x, *others, **options)

    monkeypatch.setattr(kind, "call", call)
    assert_identical(run(rnn, inputs, memory)[0], expected)
    once = {"bahdanau": ["W_k"], "location": ["W_k"], "luong": ["W"], "heads": ["W_k", "W_v"]}[name]
    assert shapes == once
    assert_close(run(rnn, inputs, rnn.cell.precompute(memory))[0], expected)


def test_initial_state_takes_states_of_the_cell_or_all():
    rnn, (inputs, memory) = build_cell("luong"), draw_inputs()
    random = np.random.default_rng(1)
    hidden, carry = (random.normal(size=(B, UNITS)).astype("float32") for _ in range(2))
    found, _, _ = run(rnn, inputs, memory, initial_state=[hidden, carry])
    fed = np.zeros((B, 9), "float32")
    assert_identical(run(rnn, inputs, memory, initial_state=[hidden, carry, fed])[0], found)
    expected, _, _ = call_step_by_step(rnn.cell, inputs, memory, states=[hidden, carry, fed])
    assert_close(found, expected, tolerance=1e-5)
    one = build_cell("bahdanau")
    single = run(one, inputs, memory, initial_state=hidden)[0]
    assert_identical(run(one, inputs, memory, initial_state=[hidden])[0], single)
    assert np.any(single != run(one, inputs, memory)[0])


class Bare(layers.Layer):
    """A cell with no more than a cell must have."""

    state_size = UNITS

    def call(self, x, states):
        following = ops.tanh(states[0] + ops.sum(x, axis=-1, keepdims=True))
        return following, [following]


def test_cell_without_initial_states_begins_with_zeros():
    rnn, (inputs, memory) = AttentionRNN(AttentionCell(Bare(), AdditiveAttention(8))), draw_inputs()
    expected = rnn(inputs, memory, initial_state=np.zeros((B, UNITS), "float32"))
    assert_identical(to_arrays(rnn(inputs, memory)), to_arrays(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [(name, COMPILED_MODES[n % len(COMPILED_MODES)]) for n, name in enumerate(CELLS)]
)
def test_one_program_takes_every_size(name, mode):
    rnn = build_cell(name)
    signature = [((None, None, Dx), "float32"), ((None, None, Dm), "float32"), ((None,), "int32"), ((None,), "int32")]
    if mode == "xla":  # its loops need to know how many steps there are
        signature = [((B, T, Dx), "float32"), ((B, Tk, Dm), "float32"), ((B,), "int32"), ((B,), "int32")]

    def decode(inputs, memory, lengths, input_lens):
        return rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)

    program = compile_function(decode, mode, signature=signature)
    for batch, steps, places in [(B, T, Tk)] if mode == "xla" else [(B, T, Tk), (2, 1, 3)]:
        sizes = {"batch": batch, "steps": steps, "places": places}
        given = [*draw_inputs(**sizes), *(lens[:batch].astype("int32") for lens in (LENGTHS, INPUT_LENS))]
        found = to_arrays(program(*map(ops.convert_to_tensor, given)))
        expected = to_arrays(decode(*given))
        for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
            assert_close(one, other, tolerance=1e-5)


STATIC = {"nothing": (None, None, None), "batch": (B, None, None), "everything": (B, T, Tk)}
WAYS = [(name, known, n % 2 == 0) for m, name in enumerate(CELLS) for n, known in enumerate(STATIC, m)]


@pytest.mark.parametrize(("name", "known", "sequences"), WAYS)
def test_symbolic_shapes_and_dtypes_equal_those_of_the_result(name, known, sequences):
    batch, steps, places = STATIC[known]
    rnn = AttentionRNN(CELLS[name](), return_sequences=sequences, return_state=True)
    given = (batch, steps, Dx), (batch, places, Dm)
    shapes = rnn.compute_output_shape(*given, return_attention_scores=True)
    assert not rnn.cell.built
    symbolic = rnn(*(keras.Input(batch_shape=shape) for shape in given), return_attention_scores=True)
    (outputs, *states), weights = symbolic
    assert outputs.shape == ((batch, steps, rnn.cell.output_size) if sequences else (batch, rnn.cell.output_size))
    assert weights.shape == ((batch, 2, steps, places) if name == "heads" else (batch, steps, places))
    assert [state.shape for state in states] == [
        (batch, places if size is None else size) for size in rnn.cell.state_size
    ]
    for each in (shapes, rnn.compute_output_shape(*given, return_attention_scores=True)):
        assert keras.tree.flatten(each) == keras.tree.flatten([tensor.shape for tensor in keras.tree.flatten(symbolic)])
    real = rnn(*draw_inputs(), return_attention_scores=True)
    for tensor, result in zip(keras.tree.flatten(symbolic), keras.tree.flatten(real), strict=True):
        assert tensor.dtype == keras.backend.standardize_dtype(result.dtype)
        assert all(size in (None, actual) for size, actual in zip(tensor.shape, result.shape, strict=True))


def test_model_of_a_precomputed_memory_is_saved_and_loaded(tmp_path):
    """No shape of a memory is in the file then, but that which the cell was built for."""
    rnn = build_cell("bahdanau")
    inputs = [keras.Input((None, Dx)), keras.Input((None, 8)), keras.Input((None, Dm))]
    outputs, _ = rnn(inputs[0], {"projected_keys": inputs[1], "projected_values": inputs[2]})
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    x, memory = draw_inputs()
    given = [x, *to_arrays([*rnn.cell.precompute(memory).values()])]
    assert_identical(to_arrays(keras.saving.load_model(tmp_path / "model.keras")(given)), to_arrays(model(given)))


def test_two_layers_may_share_a_cell():
    """The cell of one layer in another: a translator that decodes twice from one memory."""
    cell, (inputs, memory) = a_cell(), draw_inputs()
    first, second = AttentionRNN(cell), AttentionRNN(cell, return_sequences=False)
    assert_identical(to_arrays(first(inputs, memory))[:, -1], to_arrays(second(inputs, memory)))


def quantized(model):
    model.quantize("int8")


def with_lora(model):
    cell = model.get_layer("decode").cell
    for dense in (cell.attention.W_q, cell.attention.W_k, cell.W_c):
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # Keras, of its InputLayer
@pytest.mark.parametrize("change", [quantized, with_lora])
def test_quantized_and_lora_kernels_are_saved(change, tmp_path):
    x, m = keras.Input((None, Dx)), keras.Input((None, Dm))
    model = keras.Model([x, m], AttentionRNN(a_cell(when="after", attention_size=8), name="decode")(x, m))
    draw_weights(model)
    before = to_arrays(model(draw_inputs()))
    change(model)
    expected = to_arrays(model(draw_inputs()))
    assert np.any(expected != before)
    for _ in range(2):
        model = save_and_load(model, tmp_path)
        assert_identical(to_arrays(model(draw_inputs())), expected)
    if change is quantized:
        assert model.get_layer("decode").cell.W_c.quantization_mode == "int8"


def test_weights_of_a_second_call_become_outputs_of_the_model(tmp_path):
    """What a model calls more than once may have more outputs later."""
    x, m = keras.Input((T, Dx)), keras.Input((Tk, Dm))
    call = partial(AttentionRNN(a_cell()), x, m)
    model = keras.Model([x, m], [call(), call(return_attention_scores=True)[1]])
    again = save_and_load(model, tmp_path)
    expected = keras.tree.flatten(to_arrays(model(draw_inputs())))
    assert expected[-1].shape[0] == B
    for found, output in zip(keras.tree.flatten(to_arrays(again(draw_inputs()))), expected, strict=True):
        assert_identical(found, output)


def in_turn(*names):
    """Each cell with one mode."""
    modes = [*FIT_MODES.values()]
    return pytest.mark.parametrize(
        ("name", "jit_compile"), [(name, modes[n % len(modes)]) for n, name in enumerate(names)]
    )


@pytest.mark.slow
@in_turn("location", "luong")
def test_fit_with_dropout_changes_every_weight(name, jit_compile):
    model = attention_cell_cases.build_functional_model(name)
    rnn = model.get_layer("decode")
    attention = rnn.cell.attention
    options = {**attention.get_config(), "dropout": 0.3, "seed": 3}
    cell = layers.LSTMCell(UNITS, dropout=0.2, recurrent_dropout=0.2, seed=4)
    rnn = AttentionRNN(AttentionCell(cell, type(attention).from_config(options), when=rnn.cell.when))
    inputs, memory, lengths, input_lens = (keras.Input(each.shape[1:], dtype=each.dtype) for each in model.inputs)
    model = keras.Model([inputs, memory, lengths, input_lens], rnn(inputs, memory, lengths, input_lens=input_lens))
    before = [to_numpy(variable) for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    history = model.fit(
        attention_cell_cases.draw_model_inputs(), np.ones((B, T, rnn.cell.output_size)), epochs=3, verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert np.any(to_numpy(variable) != old), variable.path


@pytest.mark.slow
@in_turn("location", "bahdanau", "heads")
def test_fit_without_masks_changes_weights(name, jit_compile):
    """XLA takes the gradient of a projection in the loop."""
    made_of = attention_cell_cases.build_functional_model(name).get_layer("decode").cell
    inputs, memory, *_ = attention_cell_cases.draw_model_inputs()
    x, m = (keras.Input((None, each.shape[-1])) for each in (inputs, memory))
    model = keras.Model([x, m], layers.Dense(1)(AttentionRNN(made_of)(x, m)))
    before = to_numpy(made_of.attention.W_q.kernel)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    model.fit([inputs, memory], inputs[..., :1], verbose=0)
    after = to_numpy(made_of.attention.W_q.kernel)
    assert np.isfinite(after).all()
    assert np.any(after != before)


# Programs of JAX read the state of a seed as a constant: `fit` passes it on.
every_drawing_mode = pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "jit"])


def drawn(rnn, mode, steps=6):
    """Return outputs in training for the same input at each step, and those of the call after it."""
    inputs, memory = np.ones((2, steps, 1), "float32"), np.ones((2, 40, 3), "float32")
    rnn(inputs, memory)
    program = compile_function(lambda x, m: rnn(x, m, training=True), mode)
    return to_arrays([program(*map(ops.convert_to_tensor, (inputs, memory))) for _ in range(2)])


@pytest.mark.slow
@every_drawing_mode
def test_attention_dropout_differs_between_steps_and_calls(mode):
    rnn = AttentionRNN(AttentionCell(layers.SimpleRNNCell(3), DotProductAttention(0.5, seed=1), when="after"))
    first, second = drawn(rnn, mode)
    contexts = first[0, :, 0]  # of a memory of ones: the sum of the weights that were not dropped
    assert len(set(contexts.tolist())) > 1
    assert np.any(first != second)


@every_drawing_mode
def test_cell_dropout_is_equal_at_each_step_and_differs_between_calls(mode):
    cell = layers.SimpleRNNCell(20, dropout=0.5, recurrent_initializer="zeros", seed=1)
    rnn = AttentionRNN(AttentionCell(cell, BilinearAttention()))
    first, second = drawn(rnn, mode)
    assert_close(first, np.repeat(first[:, :1], 6, axis=1), "float32")
    assert np.any(first != second)
    assert cell._dropout_mask is None  # nothing of a call is left


@every_cell
def test_half_precision_is_close_to_float32(name):
    inputs, memory = draw_inputs()
    full, half = build_cell(name), build_cell(name, dtype="mixed_float16")
    expected, _, _ = run(full, inputs, memory, LENGTHS, input_lens=INPUT_LENS)
    found, weights, _ = run(half, inputs, memory, LENGTHS, input_lens=INPUT_LENS)
    assert found.dtype == weights.dtype == "float16"
    np.testing.assert_allclose(found, expected, atol=2e-2)


def test_dropout_of_the_loop_equals_that_of_its_steps_one_by_one():
    def made_anew():
        attention = DotProductAttention(0.5, seed=1)
        rnn = AttentionRNN(AttentionCell(layers.SimpleRNNCell(3), attention, when="after", activation=None))
        rnn.build((None, None, 1), (None, None, 3))
        draw_weights(rnn)
        return rnn

    inputs, memory = np.ones((2, 4, 1), "float32"), np.ones((2, 40, 3), "float32")
    looped = to_arrays(made_anew()(inputs, memory, training=True))
    cell = made_anew().cell
    states, outputs = cell.get_initial_state(memory=memory), []
    if keras.backend.backend() != "jax":  # Keras's loop takes the first step once more, to see what it gives
        cell(inputs[:, 0], states, memory, training=True)
    for step in range(4):
        output, states = cell(inputs[:, step], states, memory, training=True)
        outputs.append(to_arrays(output))
    assert_close(looped, np.stack(outputs, 1), "float32")
