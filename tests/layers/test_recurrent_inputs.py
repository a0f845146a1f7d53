"""What cells with attention and the loop around them refuse: in a sentence of theirs, and symbolic calls as others."""

import keras
import numpy as np
import pytest
from attention_cell_cases import CELLS, UNITS, B, Dm, Dx, T, Tk, build_cell, draw_inputs
from keras import layers
from layer_contract import build_error_pattern

from keras_attn import DotProductAttention
from keras_attn._recurrent.cell import AttentionCell
from keras_attn._recurrent.rnn import AttentionRNN

inputs, memory = draw_inputs()
state = np.ones((B, UNITS), "float32")


def floats(*shape):
    return np.ones(shape, "float32")


def precomputed(keys=(B, Tk, 8), values=(B, Tk, Dm)):
    return {"projected_keys": floats(*keys), "projected_values": floats(*values)}


FIT = r"`memory` must fit `additive_attention\w*`, whose query is a cell state of size 6.*Received: "
NEITHER = "`memory` must be a tensor .*or the dict with 'projected_keys' and .*Received: "
OF_BOTH = {  # what is given, and what is said: the name of an argument stands for a sentence on it
    "no memory": ({"memory": None}, "memory"),
    "size of the memory": ({"memory": floats(B, Tk, Dm + 1)}, "memory"),
    "rank of the memory": ({"memory": floats(B, Dm)}, "memory"),
    "batch of the memory": ({"memory": floats(B + 1, Tk, Dm)}, "`inputs` and `memory` must agree in B.*Received: "),
    "size of projected values": ({"memory": precomputed(values=(B, Tk, Dm + 1))}, FIT + ".*context has size 8, .* 7"),
    "size of projected keys": ({"memory": precomputed(keys=(B, Tk, 9))}, FIT + r".*projected_keys.* \(3, 5, 9\)"),
    "another dict": ({"memory": {"foo": memory}}, NEITHER + r"memory\['foo'\] shape"),
    "projected keys alone": ({"memory": {"projected_keys": floats(B, Tk, 8)}}, NEITHER),
    "floats for lengths": ({"valid_lens": floats(B)}, "valid_lens"),
    "length of a mask": ({"memory_mask": np.ones((B, Tk + 1), bool)}, "memory_mask"),
}
OF_CELLS = {
    "bahdanau": {
        "size of a state": ({"states": [floats(B, UNITS + 1)]}, r"`states` .*\[\(3, 6\)\].*Received: .*\[\(3, 7\)\]"),
        "too many states": ({"states": [state] * 2}, r"`states` must be a list of 1 tensors.*Received: 2 tensors"),
        "no states": ({"states": None}, r"`states` must be a list of tensors, .*states=None\."),
        "a sequence": ({"inputs": inputs}, r"`inputs` of a step must have shape \(B, Dx\).*`AttentionRNN` takes"),
    },
    "luong": {
        "size of what is fed": ({"states": [state, state, floats(B, 8)]}, r"\(3, 9\)\].*\(3, 6\), \(3, 8\)\]"),
    },
    "location": {
        "places of weights": ({"states": [floats(B, 3), *[state] * 3, floats(B, 6)]}, r"\(3, 5\)\], .*6\)\]\."),
    },
}
FIRST = "`initial_state` must "
OF_LOOPS = {
    "bahdanau": {
        "too many states": ({"initial_state": [state] * 3}, FIRST + "be the 1 states .*Received: 3 tensors"),
        "size of a state": ({"initial_state": floats(B, UNITS + 1)}, FIRST + r".*\(3, 7\) for .*\(3, 6\)"),
        "shape of the lengths of inputs": ({"input_lens": np.ones((B, T), "int32")}, "input_lens"),
        "rank of the inputs": ({"inputs": inputs[0]}, r"`inputs` must have shape \(B, T, Dx\)"),
        "size of the inputs": ({"inputs": floats(B, T, Dx + 1)}, "inputs"),
        "no step": ({"inputs": floats(B, 0, Dx)}, "`inputs` must have at least one time step"),
    },
    "luong": {
        "too few states": ({"initial_state": state}, FIRST + "be the 2 states .* or all 3 states. Received: 1 tensors"),
        "size of what is fed": (
            {"initial_state": [state, state, floats(B, 8)]},
            r"\(3, 8\) for state 2, expected \(3, 9\)",
        ),
    },
}


def rows(special):
    each = [pytest.param("bahdanau", *row, id=name) for name, row in OF_BOTH.items()]
    return each + [pytest.param(cell, *row, id=f"{cell} {n}") for cell, of in special.items() for n, row in of.items()]


def symbols(arguments):
    """Placeholders of the shapes and dtypes of arrays."""
    return keras.tree.map_structure(
        lambda a: None if a is None else keras.Input(batch_shape=a.shape, dtype=a.dtype.name), arguments
    )


every_way = pytest.mark.parametrize("as_given", [symbols, dict], ids=["symbolic", "real"])


@every_way
@pytest.mark.parametrize(("name", "arguments", "message"), rows(OF_CELLS))
def test_cell_refuses_bad_inputs(name, arguments, message, as_given):
    cell = build_cell(name).cell
    states = [floats(B, size or Tk) for size in cell.state_size]
    refuses(
        cell, ["inputs", "states", "memory"], as_given, message, {"inputs": inputs[:, 0], "states": states} | arguments
    )


@every_way
@pytest.mark.parametrize(("name", "arguments", "message"), rows(OF_LOOPS))
def test_loop_refuses_bad_inputs(name, arguments, message, as_given):
    refuses(build_cell(name), ["inputs", "memory"], as_given, message, {"inputs": inputs} | arguments)


def refuses(layer, positional, as_given, message, arguments):
    given = as_given({"memory": memory} | arguments)
    tensors = [given.pop(name) for name in positional]
    message = message if " " in message or "\\" in message else build_error_pattern(message)
    with pytest.raises((TypeError, ValueError), match=message):
        layer(*tensors, **given)


def cell_of(cell=None, attention=None, **options):
    return AttentionCell(cell or layers.GRUCell(3), attention or DotProductAttention(), **options)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cell_of(layers.GRU(3)), TypeError, r"`GRUCell\(32\)` and not `GRU"),
        (lambda: cell_of(attention=layers.Attention()), TypeError, "`attention` must be a layer of .* type Attention"),
        (lambda: cell_of(when="during"), ValueError, '`when` must be "before" or "after"'),
        (lambda: cell_of(attention_size=0), ValueError, "`attention_size` must be at least 1"),
        (lambda: cell_of(input_feeding=1), TypeError, "`input_feeding` must be True or False"),
        (lambda: cell_of().get_initial_state(), ValueError, "must be"),
        (lambda: cell_of(when="after", input_feeding=True).get_initial_state(2), ValueError, "must be built first, or"),
        (lambda: cell_of().build((B, Dx), None, {"projected_keys": (B, Tk, 8)}), ValueError, "not built yet must"),
        (lambda: AttentionRNN(layers.GRUCell(3)), TypeError, "`cell` must be an `AttentionCell`"),
        (lambda: AttentionRNN(CELLS["bahdanau"](), unroll=True), ValueError, "has no unroll"),
        (lambda: AttentionRNN(CELLS["bahdanau"](), return_state=1), TypeError, "`return_state` must be True or False"),
    ],
)
def test_bad_options_and_first_states_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@every_way
def test_first_call_refuses_bad_inputs_and_leaves_the_cell_unbuilt(as_given):
    rnn = AttentionRNN(AttentionCell(layers.GRUCell(UNITS), DotProductAttention()))
    for wrong, message in (
        ({"memory": memory}, r"`memory` must fit `dot_product_attention\w*`, .* of size 6.*memory shape \(3, 5, 7\)"),
        ({"memory": precomputed()}, "`memory` of a cell that is not built yet must be a tensor"),
        ({"inputs": inputs[0]}, r"`inputs` must have shape \(B, T, Dx\)"),
    ):
        given = as_given({"inputs": inputs, "memory": floats(B, Tk, UNITS), **wrong})
        with pytest.raises(ValueError, match=message):
            rnn(given["inputs"], given["memory"])
    assert not rnn.cell.built


@pytest.mark.parametrize("sizes", [(None, Dm), (Dx, None)])
def test_first_call_needs_the_sizes_of_weights(sizes):
    symbolic = [keras.Input((None, size)) for size in sizes]
    with pytest.raises(ValueError, match="The last axes of `inputs` and `memory` must be known when a cell is built"):
        AttentionRNN(CELLS["heads"]())(*symbolic)


def test_precompute_refuses_bad_memory():
    cell = CELLS["bahdanau"](name="decoder")
    with pytest.raises(
        ValueError, match=r"`decoder` must be built before `precompute`: .*`build\(inputs_shape, None, m"
    ):
        cell.precompute(memory)
    cell.build((B, Dx), None, memory.shape)
    for wrong, message in (
        (None, "`memory` must be a tensor .*memory=None"),
        (precomputed(), "`memory` of `precompute` must be a tensor .*not the result of `precompute`"),
        (floats(B, Tk, Dm + 1), "`memory` must have size 7 on the last axis"),
        (floats(B, Dm), r"`memory` must have shape \(B, Tk, Dv\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cell.precompute(wrong)


def test_symbolic_step_takes_sizes_from_memory_and_states():
    cell = build_cell("location").cell
    states = [keras.Input(batch_shape=(None, size)) for size in (3, UNITS, UNITS, UNITS, None)]
    unknown = keras.Input(batch_shape=(None, None, Dm))
    known = keras.Input(batch_shape=(B, Tk, Dm))
    x = keras.Input((Dx,))
    (output, after), weights = cell(x, states, known, return_attention_scores=True)
    assert output.shape == (B, UNITS)
    assert weights.shape == after[-1].shape == (B, Tk)
    _, after = cell(x, [*states[:-1], keras.Input(batch_shape=(B, Tk))], unknown)
    assert after[-1].shape == (B, Tk)
