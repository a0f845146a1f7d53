"""The textbook's recurrent decoder, trained elsewhere: our `AttentionCell` gives what it gave."""

import importlib

import keras
import numpy as np
import pytest
from backends import run_only_on
from keras import layers, ops
from layer_contract import save_and_load
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN
from keras_attn.migrate import from_state

B, STEPS, SOURCE, WORDS, EMBED, HIDDEN = 2, 4, 5, 11, 3, 6


def decoder_of(number=1, units=4, dtype=None, **options):
    cells = [layers.GRUCell(HIDDEN, dtype=dtype, **options) for _ in range(number)]
    cell = cells[0] if number == 1 else layers.StackedRNNCells(cells, dtype=dtype)
    return AttentionRNN(AttentionCell(cell, AdditiveAttention(units)))


def torch_state(number=1, inputs=HIDDEN + EMBED):
    """Names and shapes of a decoder of torch, without what goes into it and what reads it."""
    random = np.random.default_rng(5)
    shapes = {"attention.W_q.weight": (4, HIDDEN), "attention.W_k.weight": (4, HIDDEN), "attention.w_v.weight": (1, 4)}
    for place in range(number):
        kernels = {"weight_ih": (3 * HIDDEN, HIDDEN if place else inputs), "weight_hh": (3 * HIDDEN, HIDDEN)}
        biases = {"bias_ih": (3 * HIDDEN,), "bias_hh": (3 * HIDDEN,)}
        shapes |= {f"rnn.{name}_l{place}": shape for name, shape in (kernels | biases).items()}
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def arrays(number):
    random = np.random.default_rng(2)
    tokens = random.integers(0, WORDS, (B, STEPS))
    memory = random.normal(size=(B, SOURCE, HIDDEN)).astype("float32")
    return tokens, memory, random.normal(size=(number, B, HIDDEN)).astype("float32"), np.array([2, 5])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("number", [1, 2])
def test_loaded_decoder_gives_outputs_of_trained_decoder(number):
    trained = importlib.import_module("textbook_torch").decoder
    state, run = trained(np.random.default_rng(1), WORDS, EMBED, HIDDEN, number)
    tokens, memory, hidden, valid_lens = arrays(number)

    decode = decoder_of(number, HIDDEN)
    from_state(decode if number == 1 else decode.cell, state, "torch", strict=False)
    outputs = decode(state["embedding.weight"][tokens], memory, valid_lens, initial_state=list(hidden))
    logits = ops.convert_to_numpy(outputs) @ state["dense.weight"].T + state["dense.bias"]

    assert_close(logits, np.asarray(run(tokens, memory, hidden, valid_lens), "float32"), tolerance=1e-5)


def test_built_decoder_keeps_its_variables():
    decode, (_, memory, hidden, _) = decoder_of(), arrays(1)
    decode(np.zeros((B, STEPS, EMBED)), memory, initial_state=hidden[0])
    variables, state = list(decode.weights), torch_state()
    from_state(decode, state, "torch")
    assert all(now is before for now, before in zip(decode.weights, variables, strict=True))
    reset = state["rnn.weight_hh_l0"].T[:, :HIDDEN]
    assert_identical(ops.convert_to_numpy(decode.cell.cell.recurrent_kernel)[:, HIDDEN : 2 * HIDDEN], reset)


@run_only_on("tensorflow", reason="it writes a checkpoint of TensorFlow")
def test_checkpoint_of_keras_cells_is_loaded(tmp_path):
    """Keras 3 writes nothing of stacked cells into a checkpoint: their numbers are those that Keras 2 writes."""
    import tensorflow as tf

    attention, _ = importlib.import_module("textbook_tensorflow").additive(np.random.default_rng(1), *[HIDDEN] * 3)
    cells, states = [layers.GRUCell(HIDDEN), layers.GRUCell(HIDDEN)], []
    for cell, size in zip(cells, (HIDDEN + EMBED, HIDDEN), strict=True):
        rnn = layers.RNN(cell)
        rnn(np.zeros((B, STEPS, size), "float32"))
        reader = tf.train.load_checkpoint(tf.train.Checkpoint(rnn=rnn).save(str(tmp_path / "state")))
        names = [name for name in reader.get_variable_to_shape_map() if name.startswith("rnn/cell")]
        states.append({name: reader.get_tensor(name) for name in names})
    stacked = {
        name.replace("cell", f"cell/cells/{n}", 1): a for n, state in enumerate(states) for name, a in state.items()
    }
    for number, state in ((1, states[0]), (2, stacked)):
        decode = from_state(decoder_of(number, HIDDEN), state | attention, "tensorflow")
        loaded = [decode.cell.cell] if number == 1 else decode.cell.cell.cells
        for ours, theirs in zip(loaded, cells[:number], strict=True):
            for name in ("kernel", "recurrent_kernel", "bias"):
                assert_identical(*(ops.convert_to_numpy(getattr(cell, name)) for cell in (ours, theirs)))


def cell_of(cell=None, attention=None, **options):
    return AttentionCell(cell or layers.GRUCell(HIDDEN), attention or AdditiveAttention(HIDDEN), **options)


GATES = "tanh and sigmoid.* Received: AdditiveAttention and GRUCell of .* and "


@pytest.mark.parametrize(
    ("make", "source", "message"),
    [
        (lambda: cell_of(layers.LSTMCell(HIDDEN)), "torch", "Received: AdditiveAttention and LSTM"),
        (lambda: cell_of(attention=DotProductAttention()), "torch", "Received: DotProductAttention and GRUCell"),
        (lambda: cell_of(when="after"), "torch", "when='after'"),
        (lambda: cell_of(layers.GRUCell(HIDDEN, reset_after=False)), "torch", "reset_after"),
        (lambda: decoder_of(activation="relu"), "torch", GATES),
        (lambda: decoder_of(recurrent_activation="hard_sigmoid"), "torch", GATES),
        (lambda: decoder_of(activation=lambda x: x), "torch", GATES),
        (decoder_of, "flax", "A layer of type AttentionCell has no counterpart in 'flax'"),
    ],
)
def test_cell_with_other_options_than_the_textbook_is_refused(make, source, message):
    with pytest.raises(ValueError, match=message):
        from_state(make(), torch_state(), source)


def test_refused_state_leaves_the_decoder_unbuilt():
    decode, state = decoder_of(), torch_state()
    for wrong, message in (
        ({**state, "rnn.weight_ih_l1": np.ones(1)}, "no weight for .*: .*`rnn.weight_ih_l1`"),
        ({name: a for name, a in state.items() if "bias_hh" not in name}, "missing from the state: `rnn.bias_hh_l0`"),
        ({**state, "rnn.weight_hh_l0": np.ones((3 * HIDDEN, 7))}, r"\(3\*H0, H0\) = \(18, 6\) .*shape \(18, 7\)"),
        ({**state, "attention.W_q.weight": np.ones((4, 7))}, r"\(U, H0\) = \(4, 6\) .*shape \(4, 7\)"),
    ):
        with pytest.raises(ValueError, match=message):
            from_state(decode, wrong, "torch", strict="no weight" in message)
    assert not decode.cell.built


@pytest.mark.parametrize("strict", [True, False])
def test_state_with_more_recurrent_layers_than_cells_is_refused(strict):
    state = {**torch_state(2), "dense.bias": np.ones(3)}
    decode = decoder_of(1)
    with pytest.raises(ValueError, match=r"`rnn\.bias_hh_l1`") as caught:
        from_state(decode, state, "torch", strict=strict)
    assert not decode.cell.built
    if not strict:
        assert "`dense.bias`" not in str(caught.value)
        assert "`StackedRNNCells`" in str(caught.value)
        from_state(decoder_of(2), state, "torch", strict=False)


@pytest.mark.parametrize(
    ("part", "name", "built"),
    [("attention", "attention.W_k.weight", False), ("cell", "rnn.bias_ih_l1", False), ("cell", "rnn.bias_ih_l1", True)],
)
def test_numbers_must_fit_the_dtype_of_the_part_that_owns_them(part, name, built):
    state = torch_state(2)
    state[name] = np.full_like(state[name], 1e6)
    # JAX has no orthogonal matrix of float16 on a CPU
    half = {"dtype": "float16", "recurrent_initializer": "glorot_uniform"} if part == "cell" else {}
    decode = decoder_of(2, **half)
    if part == "attention":
        decode.cell.attention = AdditiveAttention(4, dtype="float16")
    if built:
        decode.build((None, None, EMBED), (None, None, HIDDEN))
    with pytest.raises(ValueError, match=rf"`{part}\..* of the layer has dtype float16, and the state has 1e\+06"):
        from_state(decode, state, "torch")
    assert decode.cell.built == built
    decode = AttentionCell(decode.cell.cell, decode.cell.attention, dtype="float16")
    other = next(each for each in state if each.split(".")[0] != name.split(".")[0])  # of float32 in a cell of float16
    from_state(decode, {**torch_state(2), other: state[other] * 1e5}, "torch")


@pytest.mark.parametrize("inputs", [HIDDEN - 1, HIDDEN])
def test_recurrent_layer_without_room_for_an_input_is_refused(inputs):
    decode = decoder_of(1)
    with pytest.raises(ValueError, match=rf"context of size M.*Received: X={inputs} .*M={HIDDEN} in the attention"):
        from_state(decode, torch_state(1, inputs), "torch")
    assert not decode.cell.built


def test_decoder_built_by_a_state_is_saved_and_loaded(tmp_path):
    decode, inputs = from_state(decoder_of(), torch_state(), "torch"), [keras.Input((None, EMBED))]
    inputs.append(keras.Input((None, HIDDEN)))
    model = keras.Model(inputs, decode(*inputs))
    again = save_and_load(model, tmp_path)
    for now, before in zip(again.weights, model.weights, strict=True):
        assert_identical(ops.convert_to_numpy(now), ops.convert_to_numpy(before))
