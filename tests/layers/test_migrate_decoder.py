"""Weights of the textbook's recurrent decoder in `AttentionCell`: equality of outputs, and rejected states."""

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


def build_decoder(num_cells=1, units=4, dtype=None, **options):
    cells = [layers.GRUCell(HIDDEN, dtype=dtype, **options) for _ in range(num_cells)]
    cell = cells[0] if num_cells == 1 else layers.StackedRNNCells(cells, dtype=dtype)
    return AttentionRNN(AttentionCell(cell, AdditiveAttention(units)))


def draw_torch_state(num_cells=1, input_size=HIDDEN + EMBED):
    """Return the state of a torch decoder, without its embedding and its output layer."""
    rng = np.random.default_rng(5)
    shapes = {"attention.W_q.weight": (4, HIDDEN), "attention.W_k.weight": (4, HIDDEN), "attention.w_v.weight": (1, 4)}
    for index in range(num_cells):
        kernels = {"weight_ih": (3 * HIDDEN, HIDDEN if index else input_size), "weight_hh": (3 * HIDDEN, HIDDEN)}
        biases = {"bias_ih": (3 * HIDDEN,), "bias_hh": (3 * HIDDEN,)}
        shapes |= {f"rnn.{name}_l{index}": shape for name, shape in (kernels | biases).items()}
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def draw_inputs(num_cells):
    """Return tokens, memory, initial states (num_cells, B, HIDDEN) and valid lengths."""
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, WORDS, (B, STEPS))
    memory = rng.normal(size=(B, SOURCE, HIDDEN)).astype("float32")
    return tokens, memory, rng.normal(size=(num_cells, B, HIDDEN)).astype("float32"), np.array([2, 5])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("num_cells", [1, 2])
def test_loaded_decoder_equals_the_trained_decoder(num_cells):
    build_trained_decoder = importlib.import_module("textbook_torch").build_decoder
    state, run = build_trained_decoder(np.random.default_rng(1), WORDS, EMBED, HIDDEN, num_cells)
    tokens, memory, hidden, valid_lens = draw_inputs(num_cells)

    decode = build_decoder(num_cells, HIDDEN)
    from_state(decode if num_cells == 1 else decode.cell, state, "torch", strict=False)
    outputs = decode(state["embedding.weight"][tokens], memory, valid_lens, initial_state=list(hidden))
    logits = ops.convert_to_numpy(outputs) @ state["dense.weight"].T + state["dense.bias"]

    assert_close(logits, np.asarray(run(tokens, memory, hidden, valid_lens), "float32"), tolerance=1e-5)


def test_built_decoder_keeps_its_variables():
    decode, (_, memory, hidden, _) = build_decoder(), draw_inputs(1)
    decode(np.zeros((B, STEPS, EMBED)), memory, initial_state=hidden[0])
    variables, state = list(decode.weights), draw_torch_state()
    from_state(decode, state, "torch")
    assert all(weight is variable for weight, variable in zip(decode.weights, variables, strict=True))
    reset_kernel = state["rnn.weight_hh_l0"].T[:, :HIDDEN]
    assert_identical(ops.convert_to_numpy(decode.cell.cell.recurrent_kernel)[:, HIDDEN : 2 * HIDDEN], reset_kernel)


@run_only_on("tensorflow", reason="the test writes a TensorFlow checkpoint")
def test_checkpoint_of_keras_cells_is_loaded(tmp_path):
    """Keras 3 writes no stacked cells into a checkpoint: the test uses the names that Keras 2 writes."""
    import tensorflow as tf

    attention, _ = importlib.import_module("textbook_tensorflow").build_additive(
        np.random.default_rng(1), *[HIDDEN] * 3
    )
    cells, states = [layers.GRUCell(HIDDEN), layers.GRUCell(HIDDEN)], []
    for cell, size in zip(cells, (HIDDEN + EMBED, HIDDEN), strict=True):
        rnn = layers.RNN(cell)
        rnn(np.zeros((B, STEPS, size), "float32"))
        reader = tf.train.load_checkpoint(tf.train.Checkpoint(rnn=rnn).save(str(tmp_path / "state")))
        names = [name for name in reader.get_variable_to_shape_map() if name.startswith("rnn/cell")]
        states.append({name: reader.get_tensor(name) for name in names})
    stacked_state = {
        name.replace("cell", f"cell/cells/{n}", 1): a for n, state in enumerate(states) for name, a in state.items()
    }
    for num_cells, state in ((1, states[0]), (2, stacked_state)):
        decode = from_state(build_decoder(num_cells, HIDDEN), state | attention, "tensorflow")
        loaded_cells = [decode.cell.cell] if num_cells == 1 else decode.cell.cell.cells
        for loaded_cell, cell in zip(loaded_cells, cells[:num_cells], strict=True):
            for name in ("kernel", "recurrent_kernel", "bias"):
                assert_identical(*(ops.convert_to_numpy(getattr(x, name)) for x in (loaded_cell, cell)))


def new_cell(cell=None, attention=None, **options):
    return AttentionCell(cell or layers.GRUCell(HIDDEN), attention or AdditiveAttention(HIDDEN), **options)


GATES_RULE = "tanh and sigmoid.* Received: AdditiveAttention and GRUCell of .* and "


@pytest.mark.parametrize(
    ("build_layer", "source", "message"),
    [
        (lambda: new_cell(layers.LSTMCell(HIDDEN)), "torch", "Received: AdditiveAttention and LSTM"),
        (lambda: new_cell(attention=DotProductAttention()), "torch", "Received: DotProductAttention and GRUCell"),
        (lambda: new_cell(when="after"), "torch", "when='after'"),
        (lambda: new_cell(layers.GRUCell(HIDDEN, reset_after=False)), "torch", "reset_after"),
        (lambda: build_decoder(activation="relu"), "torch", GATES_RULE),
        (lambda: build_decoder(recurrent_activation="hard_sigmoid"), "torch", GATES_RULE),
        (lambda: build_decoder(activation=lambda x: x), "torch", GATES_RULE),
        (build_decoder, "flax", "A layer of type AttentionCell has no counterpart in 'flax'"),
    ],
)
def test_cell_that_differs_from_the_textbook_is_rejected(build_layer, source, message):
    with pytest.raises(ValueError, match=message):
        from_state(build_layer(), draw_torch_state(), source)


def test_rejected_state_does_not_build_the_decoder():
    decode, state = build_decoder(), draw_torch_state()
    for invalid_state, message in (
        ({**state, "rnn.weight_ih_l1": np.ones(1)}, "no weight for .*: .*`rnn.weight_ih_l1`"),
        ({name: a for name, a in state.items() if "bias_hh" not in name}, "missing from the state: `rnn.bias_hh_l0`"),
        ({**state, "rnn.weight_hh_l0": np.ones((3 * HIDDEN, 7))}, r"\(3\*H0, H0\) = \(18, 6\) .*shape \(18, 7\)"),
        ({**state, "attention.W_q.weight": np.ones((4, 7))}, r"\(U, H0\) = \(4, 6\) .*shape \(4, 7\)"),
    ):
        with pytest.raises(ValueError, match=message):
            from_state(decode, invalid_state, "torch", strict="no weight" in message)
    assert not decode.cell.built


@pytest.mark.parametrize("strict", [True, False])
def test_state_with_more_recurrent_layers_than_cells_is_rejected(strict):
    state = {**draw_torch_state(2), "dense.bias": np.ones(3)}
    decode = build_decoder(1)
    with pytest.raises(ValueError, match=r"`rnn\.bias_hh_l1`") as raised:
        from_state(decode, state, "torch", strict=strict)
    assert not decode.cell.built
    if not strict:
        assert "`dense.bias`" not in str(raised.value)
        assert "`StackedRNNCells`" in str(raised.value)
        from_state(build_decoder(2), state, "torch", strict=False)


@pytest.mark.parametrize(
    ("part", "name", "is_built"),
    [("attention", "attention.W_k.weight", False), ("cell", "rnn.bias_ih_l1", False), ("cell", "rnn.bias_ih_l1", True)],
)
def test_numbers_must_fit_the_dtype_of_the_cell_or_attention(part, name, is_built):
    state = draw_torch_state(2)
    state[name] = np.full_like(state[name], 1e6)
    # JAX computes no orthogonal matrix in float16 on a CPU, so that the default initializer fails.
    options = {"dtype": "float16", "recurrent_initializer": "glorot_uniform"} if part == "cell" else {}
    decode = build_decoder(2, **options)
    if part == "attention":
        decode.cell.attention = AdditiveAttention(4, dtype="float16")
    if is_built:
        decode.build((None, None, EMBED), (None, None, HIDDEN))
    with pytest.raises(ValueError, match=rf"`{part}\..* of the layer has dtype float16, and the state has 1e\+06"):
        from_state(decode, state, "torch")
    assert decode.cell.built == is_built
    decode = AttentionCell(decode.cell.cell, decode.cell.attention, dtype="float16")
    float32_name = next(key for key in state if key.split(".")[0] != name.split(".")[0])
    from_state(decode, {**draw_torch_state(2), float32_name: state[float32_name] * 1e5}, "torch")


@pytest.mark.parametrize("input_size", [HIDDEN - 1, HIDDEN])
def test_recurrent_layer_too_small_for_an_input_is_rejected(input_size):
    decode = build_decoder(1)
    with pytest.raises(ValueError, match=rf"context of size M.*Received: X={input_size} .*M={HIDDEN} in the attention"):
        from_state(decode, draw_torch_state(1, input_size), "torch")
    assert not decode.cell.built


def test_decoder_built_from_a_state_is_saved_and_loaded(tmp_path):
    decode, inputs = from_state(build_decoder(), draw_torch_state(), "torch"), [keras.Input((None, EMBED))]
    inputs.append(keras.Input((None, HIDDEN)))
    model = keras.Model(inputs, decode(*inputs))
    for loaded_weight, weight in zip(save_and_load(model, tmp_path).weights, model.weights, strict=True):
        assert_identical(ops.convert_to_numpy(loaded_weight), ops.convert_to_numpy(weight))
