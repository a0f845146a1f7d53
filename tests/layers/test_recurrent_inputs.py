"""Error messages of `AttentionCell` and `AttentionRNN`: for invalid options, and for invalid inputs of calls."""

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


def ones(*shape):
    return np.ones(shape, "float32")


def build_memory(keys=(B, Tk, 8), values=(B, Tk, Dm)):
    return {"projected_keys": ones(*keys), "projected_values": ones(*values)}


FIT_RULE = r"`memory` must fit `additive_attention\w*`, whose query is a cell state of size 6.*Received: "
TYPE_RULE = "`memory` must be a tensor .*or the dict with 'projected_keys' and .*Received: "
# Arguments, and a pattern of the error message. The name of an argument can replace the pattern. It stands for the
# message about this argument that is the same for all layers (`build_error_pattern`).
INVALID_INPUTS = {
    "no memory": ({"memory": None}, "memory"),
    "size of the memory": ({"memory": ones(B, Tk, Dm + 1)}, "memory"),
    "rank of the memory": ({"memory": ones(B, Dm)}, "memory"),
    "batch of the memory": ({"memory": ones(B + 1, Tk, Dm)}, "`inputs` and `memory` must agree in B.*Received: "),
    "size of values": ({"memory": build_memory(values=(B, Tk, Dm + 1))}, FIT_RULE + ".*context has size 8, .* 7"),
    "size of projected keys": ({"memory": build_memory(keys=(B, Tk, 9))}, FIT_RULE + r".*projected_keys.* \(3, 5, 9\)"),
    "another dict": ({"memory": {"foo": memory}}, TYPE_RULE + r"memory\['foo'\] shape"),
    "projected keys alone": ({"memory": {"projected_keys": ones(B, Tk, 8)}}, TYPE_RULE),
    "floats for lengths": ({"valid_lens": ones(B)}, "valid_lens"),
    "length of a mask": ({"memory_mask": np.ones((B, Tk + 1), bool)}, "memory_mask"),
}
INVALID_CELL_INPUTS = {
    "bahdanau": {
        "size of a state": ({"states": [ones(B, UNITS + 1)]}, r"`states` .*\[\(3, 6\)\].*Received: .*\[\(3, 7\)\]"),
        "too many states": ({"states": [state] * 2}, r"`states` must be a list of 1 tensors.*Received: 2 tensors"),
        "no states": ({"states": None}, r"`states` must be a list of tensors, .*states=None\."),
        "a sequence": ({"inputs": inputs}, r"`inputs` of a step must have shape \(B, Dx\).*`AttentionRNN` takes"),
    },
    "luong": {
        "size of the output state": ({"states": [state, state, ones(B, 8)]}, r"\(3, 9\)\].*\(3, 6\), \(3, 8\)\]"),
    },
    "location": {
        "number of weights": ({"states": [ones(B, 3), *[state] * 3, ones(B, 6)]}, r"\(3, 5\)\], .*6\)\]\."),
    },
}
STATE_RULE = "`initial_state` must "
INVALID_RNN_INPUTS = {
    "bahdanau": {
        "too many states": ({"initial_state": [state] * 3}, STATE_RULE + "be the 1 states .*Received: 3 tensors"),
        "size of a state": ({"initial_state": ones(B, UNITS + 1)}, STATE_RULE + r".*\(3, 7\) for .*\(3, 6\)"),
        "shape of the lengths of inputs": ({"input_lens": np.ones((B, T), "int32")}, "input_lens"),
        "rank of the inputs": ({"inputs": inputs[0]}, r"`inputs` must have shape \(B, T, Dx\)"),
        "size of the inputs": ({"inputs": ones(B, T, Dx + 1)}, "inputs"),
        "no step": ({"inputs": ones(B, 0, Dx)}, "`inputs` must have at least one time step"),
    },
    "luong": {
        "too few states": ({"initial_state": state}, STATE_RULE + "be the 2 states .* or all 3 .*Received: 1 tensors"),
        "size of the output state": (
            {"initial_state": [state, state, ones(B, 8)]},
            r"\(3, 8\) for state 2, expected \(3, 9\)",
        ),
    },
}


def list_parameters(cases_by_cell):
    """Return tuples (kind of cell, arguments, pattern). Those of `INVALID_INPUTS` come first, for "bahdanau"."""
    parameters = [pytest.param("bahdanau", *case, id=name) for name, case in INVALID_INPUTS.items()]
    for cell, cases in cases_by_cell.items():
        parameters += [pytest.param(cell, *case, id=f"{cell} {name}") for name, case in cases.items()]
    return parameters


def convert_to_symbolic(arguments):
    """Replace each array by a placeholder with its shape and dtype."""
    return keras.tree.map_structure(
        lambda a: None if a is None else keras.Input(batch_shape=a.shape, dtype=a.dtype.name), arguments
    )


symbolic_and_eager = pytest.mark.parametrize("convert", [convert_to_symbolic, dict], ids=["symbolic", "eager"])


@symbolic_and_eager
@pytest.mark.parametrize(("cell_kind", "arguments", "pattern"), list_parameters(INVALID_CELL_INPUTS))
def test_cell_rejects_invalid_inputs(cell_kind, arguments, pattern, convert):
    cell = build_cell(cell_kind).cell
    arguments = {"inputs": inputs[:, 0], "states": [ones(B, size or Tk) for size in cell.state_size]} | arguments
    assert_rejects(cell, ["inputs", "states", "memory"], convert, pattern, arguments)


@symbolic_and_eager
@pytest.mark.parametrize(("cell_kind", "arguments", "pattern"), list_parameters(INVALID_RNN_INPUTS))
def test_rnn_rejects_invalid_inputs(cell_kind, arguments, pattern, convert):
    assert_rejects(build_cell(cell_kind), ["inputs", "memory"], convert, pattern, {"inputs": inputs} | arguments)


def assert_rejects(layer, positional_names, convert, pattern, arguments):
    arguments = convert({"memory": memory} | arguments)
    tensors = [arguments.pop(name) for name in positional_names]
    is_argument_name = " " not in pattern and "\\" not in pattern
    pattern = build_error_pattern(pattern) if is_argument_name else pattern
    with pytest.raises((TypeError, ValueError), match=pattern):
        layer(*tensors, **arguments)


def make_cell(cell=None, attention=None, **options):
    """Create an `AttentionCell` that is not built. By default it has a `GRUCell` and dot-product attention."""
    return AttentionCell(cell or layers.GRUCell(3), attention or DotProductAttention(), **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make_cell(layers.GRU(3)), TypeError, r"`GRUCell\(32\)` and not `GRU"),
        (lambda: make_cell(attention=layers.Attention()), TypeError, "`attention` must be a .* type Attention"),
        (lambda: make_cell(when="during"), ValueError, '`when` must be "before" or "after"'),
        (lambda: make_cell(attention_size=0), ValueError, "`attention_size` must be at least 1"),
        (lambda: make_cell(input_feeding=1), TypeError, "`input_feeding` must be True or False"),
        (lambda: make_cell().get_initial_state(), ValueError, "must be"),
        (
            lambda: make_cell(when="after", input_feeding=True).get_initial_state(2),
            ValueError,
            "must be built first, or",
        ),
        (lambda: make_cell().build((B, Dx), None, {"projected_keys": (B, Tk, 8)}), ValueError, "not built yet must"),
        (lambda: AttentionRNN(layers.GRUCell(3)), TypeError, "`cell` must be an `AttentionCell`"),
        (lambda: AttentionRNN(CELLS["bahdanau"](), unroll=True), ValueError, "has no unroll"),
        (lambda: AttentionRNN(CELLS["bahdanau"](), return_state=1), TypeError, "`return_state` must be True or False"),
    ],
)
def test_invalid_options_and_initial_states_are_rejected(call, error, message):
    with pytest.raises(error, match=message):
        call()


@symbolic_and_eager
def test_first_call_with_invalid_inputs_does_not_build_the_cell(convert):
    rnn = AttentionRNN(AttentionCell(layers.GRUCell(UNITS), DotProductAttention()))
    for invalid_arguments, message in (
        ({"memory": memory}, r"`memory` must fit `dot_product_attention\w*`, .* of size 6.*memory shape \(3, 5, 7\)"),
        ({"memory": build_memory()}, "`memory` of a cell that is not built yet must be a tensor"),
        ({"inputs": inputs[0]}, r"`inputs` must have shape \(B, T, Dx\)"),
    ):
        arguments = convert({"inputs": inputs, "memory": ones(B, Tk, UNITS), **invalid_arguments})
        with pytest.raises(ValueError, match=message):
            rnn(arguments["inputs"], arguments["memory"])
    assert not rnn.cell.built


@pytest.mark.parametrize("sizes", [(None, Dm), (Dx, None)])
def test_first_call_needs_static_sizes(sizes):
    symbolic_inputs = [keras.Input((None, size)) for size in sizes]
    with pytest.raises(ValueError, match="The last axes of `inputs` and `memory` must be known when a cell is built"):
        AttentionRNN(CELLS["heads"]())(*symbolic_inputs)


def test_precompute_rejects_invalid_memory():
    cell = CELLS["bahdanau"](name="decoder")
    with pytest.raises(
        ValueError, match=r"`decoder` must be built before `precompute`: .*`build\(inputs_shape, None, m"
    ):
        cell.precompute(memory)
    cell.build((B, Dx), None, memory.shape)
    for invalid_memory, message in (
        (None, "`memory` must be a tensor .*memory=None"),
        (build_memory(), "`memory` of `precompute` must be a tensor .*not the result of `precompute`"),
        (ones(B, Tk, Dm + 1), "`memory` must have size 7 on the last axis"),
        (ones(B, Dm), r"`memory` must have shape \(B, Tk, Dv\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cell.precompute(invalid_memory)


def test_symbolic_step_infers_sizes_from_memory_and_states():
    cell = build_cell("location").cell
    states = [keras.Input(batch_shape=(None, size)) for size in (3, UNITS, UNITS, UNITS, None)]
    dynamic_memory, static_memory = (keras.Input(batch_shape=(*sizes, Dm)) for sizes in ((None, None), (B, Tk)))
    x = keras.Input((Dx,))
    (output, next_states), weights = cell(x, states, static_memory, return_attention_scores=True)
    assert output.shape == (B, UNITS)
    assert weights.shape == next_states[-1].shape == (B, Tk)
    _, next_states = cell(x, [*states[:-1], keras.Input(batch_shape=(B, Tk))], dynamic_memory)
    assert next_states[-1].shape == (B, Tk)
