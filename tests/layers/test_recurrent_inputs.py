"""What cells with attention and the loop around them refuse: in a sentence of theirs, and symbolic calls as others."""

import keras
import numpy as np
import pytest
from keras import layers
from recurrent_cases import CELLS, UNITS, B, Dm, Dx, T, Tk, inputs_of, made

from keras_attn import DotProductAttention
from keras_attn._attention_cell import AttentionCell
from keras_attn._attention_rnn import AttentionRNN

inputs, memory = inputs_of()
state = np.ones((B, UNITS), "float32")


def floats(*shape):
    return np.ones(shape, "float32")


def precomputed(keys=(B, Tk, 8), values=(B, Tk, Dm)):
    return {"projected_keys": floats(*keys), "projected_values": floats(*values)}


FIT = r"`memory` must fit `additive_attention\w*`, which the cell asks by states of size 6.*Received: "
OF_BOTH = {
    "size of the memory": (
        {"memory": floats(B, Tk, Dm + 1)},
        ValueError,
        r"`memory` must have the size 7 that the cell was built for.*Received: memory shape \(3, 5, 8\)",
    ),
    "rank of the memory": (
        {"memory": floats(B, Dm)},
        ValueError,
        r"`memory` must have shape \(B, Tk, Dv\)\. Received: memory shape \(3, 7\)",
    ),
    "batch of the memory": (
        {"memory": floats(B + 1, Tk, Dm)},
        ValueError,
        r"`inputs` and `memory` must agree in B.*Received: inputs shape .*, memory shape \(4, 5, 7\)",
    ),
    "size of projected values": (
        {"memory": precomputed(values=(B, Tk, Dm + 1))},
        ValueError,
        FIT + r".*memory\['projected_values'\] shape \(3, 5, 8\). Its context has size 8, and must have 7",
    ),
    "size of projected keys": (
        {"memory": precomputed(keys=(B, Tk, 9))},
        ValueError,
        FIT + r"memory\['projected_keys'\] shape \(3, 5, 9\)",
    ),
    "rank of projected keys": (
        {"memory": precomputed(keys=(B, 1, Tk, 8))},
        ValueError,
        r"`memory` must have shape \(B, Tk, Dv\).*memory\['projected_keys'\] shape \(3, 1, 5, 8\)",
    ),
    "batch of projected values": (
        {"memory": precomputed(values=(B + 1, Tk, Dm))},
        ValueError,
        "`inputs` and `memory` must agree in B",
    ),
    "another dict": (
        {"memory": {"foo": memory}},
        ValueError,
        r"`memory` must be a tensor .*or the dict with 'projected_keys' and .*Received: memory\['foo'\] shape",
    ),
    "projected keys alone": (
        {"memory": {"projected_keys": floats(B, Tk, 8)}},
        ValueError,
        "`memory` must be a tensor .*or the dict with 'projected_keys' and 'projected_values'",
    ),
    "floats for lengths": (
        {"valid_lens": floats(B)},
        TypeError,
        "`valid_lens` must be integers. Received: valid_lens dtype float32",
    ),
    "shape of lengths": (
        {"valid_lens": np.ones((B, 1), "int32")},
        ValueError,
        r"`valid_lens` must have shape \(B,\), here \(3,\).*Received: valid_lens shape \(3, 1\)",
    ),
    "length of a mask": (
        {"memory_mask": np.ones((B, Tk + 1), bool)},
        ValueError,
        r"`memory_mask` must have the shape of `memory` .*memory_mask shape \(3, 6\)",
    ),
    "dtype of a mask": ({"memory_mask": floats(B, Tk)}, TypeError, "`memory_mask` must be boolean"),
}
OF_CELLS = {
    "bahdanau": {
        "size of a state": (
            {"states": [floats(B, UNITS + 1)]},
            ValueError,
            r"`states` must be a list of 1 tensors of shapes \[\(3, 6\)\].*Received: 1 tensors of shapes \[\(3, 7\)\]",
        ),
        "batch of a state": (
            {"states": [floats(1, UNITS)]},
            ValueError,
            r"`states` must be a list of 1 tensors of shapes \[\(3, 6\)\].*Received: 1 tensors of shapes \[\(1, 6\)\]",
        ),
    },
    "luong": {
        "size of a state": ({"states": [state, floats(B, UNITS + 1), floats(B, 9)]}, ValueError, r"\(3, 7\), \(3, 9\)"),
        "size of what is fed": (
            {"states": [state, state, floats(B, 8)]},
            ValueError,
            r"`states` must be a list of 3 tensors of shapes \[\(3, 6\), \(3, 6\), \(3, 9\)\].*\(3, 6\), \(3, 8\)\]",
        ),
    },
    "heads": {"size of a state": ({"states": [floats(B, UNITS + 1)]}, ValueError, "`states` must be a list of 1")},
    "location": {
        "places of weights so far": (
            {"states": [floats(B, 3), state, state, state, floats(B, Tk + 1)]},
            ValueError,
            r"`states` must be a list of 5 tensors of shapes .*\(3, 5\)\], .*\(3, 6\)\]\.",
        )
    },
}
OF_LOOPS = {
    "bahdanau": {
        "too many states": (
            {"initial_state": [state] * 3},
            ValueError,
            "`initial_state` must be the 1 states of the cell in the cell, or all 1. Received: 3 tensors",
        ),
        "size of a state": (
            {"initial_state": floats(B, UNITS + 1)},
            ValueError,
            r"`initial_state` must have the shapes of the states. Received: shape \(3, 7\) for .*shape \(3, 6\)",
        ),
        "shape of the lengths of inputs": (
            {"input_lens": np.ones((B, T), "int32")},
            ValueError,
            r"`input_lens` must have shape \(B,\)",
        ),
        "rank of the inputs": ({"inputs": inputs[0]}, ValueError, r"`inputs` must have shape \(B, T, Dx\)"),
    },
    "luong": {
        "size of what is fed": (
            {"initial_state": [state, state, floats(B, 8)]},
            ValueError,
            r"Received: shape \(3, 8\) for number 2, of shape \(3, 9\)",
        )
    },
}


def rows(special):
    each = [pytest.param("bahdanau", *row, id=name) for name, row in OF_BOTH.items()]
    return each + [pytest.param(cell, *row, id=f"{cell} {n}") for cell, of in special.items() for n, row in of.items()]


def symbols(arguments):
    """Placeholders of the shapes and dtypes of arrays."""
    return keras.tree.map_structure(lambda a: keras.Input(batch_shape=a.shape, dtype=a.dtype.name), arguments)


every_way = pytest.mark.parametrize("as_given", [symbols, dict], ids=["symbolic", "real"])


@every_way
@pytest.mark.parametrize(("name", "arguments", "error", "message"), rows(OF_CELLS))
def test_a_cell_refuses(name, arguments, error, message, as_given):
    cell = made(name).cell
    states = [floats(B, size or Tk) for size in cell.state_size]
    given = as_given({"inputs": inputs[:, 0], "states": states, "memory": memory, **arguments})
    with pytest.raises(error, match=message):
        cell(given.pop("inputs"), given.pop("states"), given.pop("memory"), **given)


@every_way
@pytest.mark.parametrize(("name", "arguments", "error", "message"), rows(OF_LOOPS))
def test_a_loop_refuses(name, arguments, error, message, as_given):
    rnn, given = made(name), as_given({"inputs": inputs, "memory": memory, **arguments})
    with pytest.raises(error, match=message):
        rnn(given.pop("inputs"), given.pop("memory"), **given)


@every_way
def test_a_first_call_says_what_does_not_fit_as_later_ones_do(as_given):
    rnn = AttentionRNN(AttentionCell(layers.GRUCell(UNITS), DotProductAttention()))
    for wrong, message in (
        ({"memory": memory}, r"`memory` must fit `dot_product_attention\w*`, .* of size 6.*memory shape \(3, 5, 7\)"),
        ({"memory": {"foo": memory}}, "`memory` must be a tensor .*or the dict with"),
        ({"memory": precomputed()}, "`memory` of a cell that is not built yet must be a tensor"),
        ({"inputs": inputs[0]}, r"`inputs` must have shape \(B, T, Dx\)"),
        ({"memory": floats(B + 1, Tk, UNITS)}, "`inputs` and `memory` must agree in B"),
    ):
        given = as_given({"inputs": inputs, "memory": floats(B, Tk, UNITS), **wrong})
        with pytest.raises(ValueError, match=message):
            rnn(given["inputs"], given["memory"])
    assert not rnn.cell.built


@pytest.mark.parametrize("sizes", [(None, Dm), (Dx, None)])
def test_a_first_call_must_tell_the_sizes_of_weights(sizes):
    symbolic = [keras.Input((None, size)) for size in sizes]
    with pytest.raises(ValueError, match="The last axes of `inputs` and `memory` must be known when a cell is built"):
        AttentionRNN(CELLS["heads"]())(*symbolic)


def test_states_that_are_not_given():
    with pytest.raises(ValueError, match=r"`states` must be a list of tensors, .*states=None\.") as caught:
        made("bahdanau").cell(inputs[:, 0], None, memory)
    assert "twice" not in str(caught.value)


def test_precompute_speaks_of_the_cell():
    cell = CELLS["bahdanau"](name="decoder")
    with pytest.raises(
        ValueError, match=r"`decoder` must be built before `precompute`: .*`build\(inputs_shape, None, m"
    ):
        cell.precompute(memory)
    cell.build((B, Dx), None, memory.shape)
    for wrong, message in (
        (None, "`memory` must be a tensor .*memory=None"),
        (precomputed(), "`memory` of `precompute` must be a tensor .*not what `precompute` gave"),
        (floats(B, Tk, Dm + 1), "`memory` must have the size 7 that the cell was built for"),
        (floats(B, Dm), r"`memory` must have shape \(B, Tk, Dv\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cell.precompute(wrong)


def test_a_symbolic_step_knows_what_the_memory_and_the_states_know():
    cell = made("location").cell
    states = [keras.Input(batch_shape=(None, size)) for size in (3, UNITS, UNITS, UNITS, None)]
    unknown = keras.Input(batch_shape=(None, None, Dm))
    known = keras.Input(batch_shape=(B, Tk, Dm))
    x = keras.Input((Dx,))
    (output, after), weights = cell(x, states, known, return_attention_scores=True)
    assert output.shape == (B, UNITS)
    assert weights.shape == after[-1].shape == (B, Tk)
    _, after = cell(x, [*states[:-1], keras.Input(batch_shape=(B, Tk))], unknown)
    assert after[-1].shape == (B, Tk)
