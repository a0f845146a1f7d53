"""The loop around a cell with attention: as its steps one by one, whatever is padded, on every backend."""

from functools import partial

import keras
import numpy as np
import pytest
from backends import COMPILED_MODES, compiled, mask_of
from contract_cases import randomise
from keras import layers, ops
from recurrent_cases import CELLS, INPUT_LENS, LENGTHS, UNITS, B, Dm, Dx, T, Tk, arrays, inputs_of, made, one_by_one
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN

every_cell = pytest.mark.parametrize("name", CELLS)


def a_cell(**options):
    return AttentionCell(layers.GRUCell(UNITS), AdditiveAttention(8), **options)


def run(rnn, *inputs, **options):
    """Outputs, weights and states, as arrays."""
    (outputs, *states), weights = arrays(rnn(*inputs, return_attention_scores=True, **options))
    return outputs, weights, states


@every_cell
def test_it_is_its_steps_one_by_one(name):
    rnn, (inputs, memory) = made(name), inputs_of()
    outputs, weights, states = run(rnn, inputs, memory, LENGTHS)
    by_hand = one_by_one(rnn.cell, inputs, memory, LENGTHS)
    assert_close(outputs, by_hand[0], tolerance=1e-5)
    assert_close(weights, by_hand[1], tolerance=1e-5)
    for found, expected in zip(states, by_hand[2], strict=True):
        assert_close(found, expected, tolerance=1e-5)
    assert not np.any(weights[2])
    assert np.any(outputs[0, 1] != outputs[0, 2])


@every_cell
@pytest.mark.parametrize("by_mask", [False, True], ids=["input_lens", "inputs_mask"])
def test_steps_that_are_masked_leave_the_states_and_give_zeros(name, by_mask):
    rnn, (inputs, memory) = made(name), inputs_of()
    kept = np.arange(T) < INPUT_LENS[:, None]
    options = {"inputs_mask": kept} if by_mask else {"input_lens": INPUT_LENS}
    outputs, weights, states = run(rnn, inputs, memory, LENGTHS, **options)
    (carrying, *_), _ = rnn(inputs, memory, LENGTHS, return_attention_scores=True, **options)
    assert_identical(arrays(mask_of(carrying)), kept)
    assert not np.any(outputs[~kept])
    assert not np.any(np.moveaxis(weights, -2, 1)[~kept])
    for row, steps in enumerate(INPUT_LENS):
        rows = slice(row, row + 1)
        alone = run(rnn, inputs[rows, :steps], memory[rows], LENGTHS[rows])
        assert_close(outputs[rows, :steps], alone[0], tolerance=1e-5)
        assert_close(weights[rows, ..., :steps, :], alone[1], tolerance=1e-5)
        for found, expected in zip(states, alone[2], strict=True):
            assert_close(found[rows], expected, tolerance=1e-5)


def test_a_step_in_the_middle_may_be_masked():
    rnn, (inputs, memory) = made("bahdanau"), inputs_of()
    kept = np.array([[True, False, True, True]] * B)
    outputs, _, (state,) = run(rnn, inputs, memory, inputs_mask=kept)
    without, _, (expected,) = run(rnn, inputs[:, [0, 2, 3]], memory)
    assert_close(outputs[:, [0, 2, 3]], without, tolerance=1e-5)
    assert_close(state, expected, tolerance=1e-5)


@pytest.mark.parametrize("lens", [None, INPUT_LENS, np.array([0, 2, 4])], ids=["all", "some", "none of a row"])
def test_the_last_output_is_that_of_the_last_step_made(lens):
    rnn, (inputs, memory) = made("luong"), inputs_of()
    whole, _, _ = run(rnn, inputs, memory, input_lens=lens)
    rnn.return_sequences = False
    last, weights, _ = run(rnn, inputs, memory, input_lens=lens)
    assert last.shape == (B, 9)
    assert weights.shape == (B, T, Tk)
    for row, steps in enumerate([T] * B if lens is None else lens):
        assert_identical(last[row], whole[row, steps - 1] if steps else np.zeros(9, "float32"))


def test_an_embedding_masks_and_the_output_carries_the_mask():
    embed = layers.Embedding(9, Dx, mask_zero=True)
    ids, words = np.array([[3, 4, 0, 0], [1, 2, 3, 4], [5, 0, 0, 0]]), np.array([[1, 2, 0], [1, 0, 0], [1, 2, 3]])
    encode, rnn = layers.Embedding(9, Dm, mask_zero=True), made("bahdanau")
    outputs, *_ = rnn(embed(ids), encode(words))
    assert_identical(arrays(mask_of(outputs)), ids != 0)
    assert mask_of(rnn(*inputs_of())[0]) is None
    expected, *_ = rnn(arrays(embed(ids)), arrays(encode(words)), np.array([2, 1, 3]), input_lens=np.array([2, 4, 1]))
    assert_close(arrays(outputs), arrays(expected), "float32")


@every_cell
def test_the_memory_is_projected_once(name, monkeypatch):
    rnn, (inputs, memory) = made(name), inputs_of()
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


def test_first_states_of_the_cell_or_all_of_them():
    rnn, (inputs, memory) = made("luong"), inputs_of()
    random = np.random.default_rng(1)
    hidden, carry = (random.normal(size=(B, UNITS)).astype("float32") for _ in range(2))
    found, _, _ = run(rnn, inputs, memory, initial_state=[hidden, carry])
    fed = np.zeros((B, 9), "float32")
    assert_identical(run(rnn, inputs, memory, initial_state=[hidden, carry, fed])[0], found)
    expected, _, _ = one_by_one(rnn.cell, inputs, memory, states=[hidden, carry, fed])
    assert_close(found, expected, tolerance=1e-5)
    one = made("bahdanau")
    single = run(one, inputs, memory, initial_state=hidden)[0]
    assert_identical(run(one, inputs, memory, initial_state=[hidden])[0], single)
    assert np.any(single != run(one, inputs, memory)[0])


class Bare(layers.Layer):
    """A cell with no more than a cell must have."""

    state_size = UNITS

    def call(self, x, states):
        following = ops.tanh(states[0] + ops.sum(x, axis=-1, keepdims=True))
        return following, [following]


def test_a_cell_that_makes_no_states_begins_with_zeros():
    rnn, (inputs, memory) = AttentionRNN(AttentionCell(Bare(), AdditiveAttention(8))), inputs_of()
    expected = rnn(inputs, memory, initial_state=np.zeros((B, UNITS), "float32"))
    assert_identical(arrays(rnn(inputs, memory)), arrays(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [(name, COMPILED_MODES[n % len(COMPILED_MODES)]) for n, name in enumerate(CELLS)]
)
def test_one_program_takes_every_size(name, mode):
    rnn = made(name)
    signature = [((None, None, Dx), "float32"), ((None, None, Dm), "float32"), ((None,), "int32"), ((None,), "int32")]
    if mode == "xla":  # its loops need to know how many steps there are
        signature = [((B, T, Dx), "float32"), ((B, Tk, Dm), "float32"), ((B,), "int32"), ((B,), "int32")]

    def decode(inputs, memory, lengths, input_lens):
        return rnn(inputs, memory, lengths, input_lens=input_lens, return_attention_scores=True)

    program = compiled(decode, mode, signature=signature)
    for batch, steps, places in [(B, T, Tk)] if mode == "xla" else [(B, T, Tk), (2, 1, 3)]:
        sizes = {"batch": batch, "steps": steps, "places": places}
        given = [*inputs_of(**sizes), *(lens[:batch].astype("int32") for lens in (LENGTHS, INPUT_LENS))]
        found = arrays(program(*map(ops.convert_to_tensor, given)))
        expected = arrays(decode(*given))
        for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
            assert_close(one, other, tolerance=1e-5)


STATIC = {"nothing": (None, None, None), "batch": (B, None, None), "everything": (B, T, Tk)}
WAYS = [(name, known, n % 2 == 0) for m, name in enumerate(CELLS) for n, known in enumerate(STATIC, m)]


@pytest.mark.parametrize(("name", "known", "sequences"), WAYS)
def test_symbolic_shapes_and_dtypes_are_those_of_the_result(name, known, sequences):
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
    real = rnn(*inputs_of(), return_attention_scores=True)
    for tensor, result in zip(keras.tree.flatten(symbolic), keras.tree.flatten(real), strict=True):
        assert tensor.dtype == keras.backend.standardize_dtype(result.dtype)
        assert all(size in (None, actual) for size, actual in zip(tensor.shape, result.shape, strict=True))


@every_cell
def test_half_precision(name):
    inputs, memory = inputs_of()
    full, half = made(name), made(name, dtype="mixed_float16")
    expected, _, _ = run(full, inputs, memory, LENGTHS, input_lens=INPUT_LENS)
    found, weights, _ = run(half, inputs, memory, LENGTHS, input_lens=INPUT_LENS)
    assert found.dtype == weights.dtype == "float16"
    np.testing.assert_allclose(found, expected, atol=2e-2)


def test_saved_and_loaded_where_the_memory_was_precomputed_elsewhere(tmp_path):
    """No shape of a memory is in the file then, but that which the cell was built for."""
    rnn = made("bahdanau")
    inputs = [keras.Input((None, Dx)), keras.Input((None, 8)), keras.Input((None, Dm))]
    outputs, _ = rnn(inputs[0], {"projected_keys": inputs[1], "projected_values": inputs[2]})
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    x, memory = inputs_of()
    given = [x, *arrays([*rnn.cell.precompute(memory).values()])]
    assert_identical(arrays(keras.saving.load_model(tmp_path / "model.keras")(given)), arrays(model(given)))


def test_two_layers_do_not_share_what_is_given_to_one():
    """The cell of one layer in another: a translator that decodes twice from one memory."""
    cell, (inputs, memory) = a_cell(), inputs_of()
    first, second = AttentionRNN(cell), AttentionRNN(cell, return_sequences=False)
    assert_identical(arrays(first(inputs, memory))[:, -1], arrays(second(inputs, memory)))


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
def test_what_kernels_became_is_saved(change, tmp_path):
    x, m = keras.Input((None, Dx)), keras.Input((None, Dm))
    model = keras.Model([x, m], AttentionRNN(a_cell(when="after", attention_size=8), name="decode")(x, m))
    randomise(model)
    before = arrays(model(inputs_of()))
    change(model)
    expected = arrays(model(inputs_of()))
    assert np.any(expected != before)
    for trip in range(2):
        model.save(tmp_path / f"{trip}.keras")
        model = keras.saving.load_model(tmp_path / f"{trip}.keras")
        assert_identical(arrays(model(inputs_of())), expected)
    if change is quantized:
        assert model.get_layer("decode").cell.W_c.quantization_mode == "int8"


CALLED = {  # calls of a layer, a loop and a cell
    "layer": lambda x, m: partial(AdditiveAttention(8), x, m, m),
    "loop": lambda x, m: partial(AttentionRNN(a_cell()), x, m),
    "cell": lambda x, m: partial(a_cell(), x[:, 0], [x[:, 1, :1] + np.zeros(UNITS, "float32")], m),
}


@pytest.mark.parametrize("called", CALLED.values(), ids=CALLED)
def test_weights_of_a_second_call_are_outputs_of_the_model(called, tmp_path):
    """What a model calls more than once may have more outputs later."""
    x, m = keras.Input((T, Dx)), keras.Input((Tk, Dm))
    call = called(x, m)
    model = keras.Model([x, m], [call(), call(return_attention_scores=True)[1]])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = keras.tree.flatten(arrays(model(inputs_of())))
    assert expected[-1].shape[0] == B
    for found, output in zip(keras.tree.flatten(arrays(again(inputs_of()))), expected, strict=True):
        assert_identical(found, output)


def test_without_a_call_there_are_no_outputs():
    assert a_cell().output is None
