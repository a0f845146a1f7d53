"""Promises 2, 3 and 4 of layers that pool within others: positions in heads, and cells that attend in a loop."""

import attention_cell_cases
import numpy as np
import pytest
from backends import BACKEND, compile_function, compute_gradients
from keras import ops
from layer_contract import POSITION_LAYERS, RECURRENT_LAYERS, draw_weights, to_numpy
from tolerances import assert_identical

from keras_attn import DotProductAttention, LinearBias, MultiHeadAttention, RelativePositionBias, RotaryEmbedding

HEADS = 2
LENGTHS = attention_cell_cases.LENGTHS
ENDED = np.arange(attention_cell_cases.T) >= attention_cell_cases.INPUT_LENS[:, None]
PADDED = np.arange(attention_cell_cases.Tk) >= LENGTHS[:, None]
HALVES = ("mixed_float16", "mixed_bfloat16")  # variables of float16 are more than Keras can draw for recurrent cells


class Biased:
    """Heads whose scores get a bias of positions."""

    def __init__(self, bias, process_heads=None):
        dtype = bias.dtype_policy if bias else process_heads.dtype_policy
        self.attend = MultiHeadAttention(
            DotProductAttention(dtype=dtype), HEADS, 4, process_heads=process_heads, dtype=dtype
        )
        self.attend.build((None, None, attention_cell_cases.Dx), *[(None, None, attention_cell_cases.Dm)] * 2)
        draw_weights(self.attend)
        self.bias, self.trainable_variables = bias, list(self.attend.trainable_variables)
        if bias:
            bias.build((None, None, attention_cell_cases.Dx))
            draw_weights(bias)
            self.trainable_variables += bias.trainable_variables

    def __call__(self, queries, memory, lengths):
        bias = self.bias(queries, memory) if self.bias else None
        return self.attend(queries, memory, memory, lengths, score_bias=bias, return_attention_scores=True)


class Recurrent:
    """A cell over all steps."""

    def __init__(self, name, **options):
        self.layer = attention_cell_cases.build_cell(name, **options)
        self.trainable_variables = self.layer.trainable_variables

    def __call__(self, queries, memory, lengths):
        (output, *states), weights = self.layer(
            queries, memory, lengths, input_lens=attention_cell_cases.INPUT_LENS, return_attention_scores=True
        )
        return output, weights, *states


MADE = {
    "RelativePositionBias": lambda **o: Biased(RelativePositionBias(HEADS, num_buckets=6, max_distance=9, **o)),
    "LinearBias": lambda **o: Biased(LinearBias(HEADS, **o)),
    "RotaryEmbedding": lambda **o: Biased(None, RotaryEmbedding(**o)),
    **{f"AttentionRNN {name}": lambda name=name, **o: Recurrent(name, **o) for name in attention_cell_cases.CELLS},
}
every_part = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


def inputs_of(poison=None, scale=1.0, steps_too=False):
    queries, memory = (scale * array for array in attention_cell_cases.draw_inputs())
    if steps_too:
        queries = np.where(ENDED[..., None], np.float32(poison), queries)
    return queries, memory if poison is None else np.where(PADDED[..., None], np.float32(poison), memory)


def program_of(layer):
    """What gives output, weights and states, and the gradients of sums of squares by queries, memory and weights."""

    def loss(queries, memory):
        output, _, *states = layer(queries, memory, LENGTHS)
        return sum(ops.sum(ops.square(ops.cast(each, "float32"))) for each in (output, *states))

    take = compute_gradients(loss, 2, layer.trainable_variables)
    program = compile_function(
        lambda *inputs: [*layer(*inputs, LENGTHS), *take(*inputs)],
        "jit" if BACKEND == "jax" else "eager",  # on JAX an eager loop takes seconds
        variables=layer.trainable_variables,
    )
    return lambda *inputs: [to_numpy(each) for each in program(*map(ops.convert_to_tensor, inputs))]


def test_table_covers_every_layer_of_positions_and_cells():
    named = {name.split()[0] for name in MADE} | {type(attention_cell_cases.build_cell("luong").cell).__name__}
    assert named == {each.__name__ for each in (*POSITION_LAYERS, *RECURRENT_LAYERS)}


@pytest.mark.slow
@every_part
def test_poison_in_padding_changes_nothing(make):
    layer = make()
    program, steps_too = program_of(layer), isinstance(layer, Recurrent)
    clean, *dirty = (program(*inputs_of(poison, steps_too=steps_too)) for poison in (0.0, np.nan, 1e30))
    for found in dirty:
        for poisoned, expected in zip(found, clean, strict=True):
            assert_identical(poisoned, expected)
    assert all(np.any(array != 0) for array in clean)
    output, weights, *others = clean
    by_memory = others[-1 - len(layer.trainable_variables)]
    assert LENGTHS[2] == 0
    assert not np.any(weights[2])
    assert not np.any(by_memory[2])
    assert np.all(output[2, :3] == 0) == isinstance(layer, Biased)  # a cell continues without a context


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), [(name, HALVES[n % 2]) for n, name in enumerate(MADE)])
def test_half_precision_neither_leaks_nor_overflows(name, policy):
    program = program_of(MADE[name](dtype=policy))
    found = program(*inputs_of(0.0))
    for clean, dirty in zip(found, program(*inputs_of(np.nan)), strict=True):
        assert_identical(dirty, clean)
        assert np.all(np.isfinite(clean))
    assert found[0].dtype == found[1].dtype == policy.removeprefix("mixed_")
    assert not np.any(found[1][2])
    large = program(*inputs_of(scale=30.0))[1].astype("float32").sum(axis=-1)
    np.testing.assert_allclose(large[1], 1, atol=0.02)  # of up to five weights, each rounded
    np.testing.assert_allclose(large[0, ..., 0], 1, atol=0.02)
    assert not np.any(large[2])


@pytest.mark.slow
@every_part
def test_memory_without_keys_gives_what_a_masked_one_gives(make):
    layer, (queries, memory) = make(), inputs_of()
    assert LENGTHS[2] == 0
    other = np.concatenate([memory[:2], 1 - memory[2:]])
    program = program_of(layer)
    (output, weights, *found), (another, *_) = program(queries, memory), program(queries, other)
    assert_identical(another, output)
    assert not np.any(weights[2])
    by_memory = found[-1 - len(layer.trainable_variables)]
    assert not np.any(by_memory[2])
    assert np.all(np.isfinite(output))
    assert np.all(output[2, :3] == 0) == isinstance(layer, Biased)  # a cell goes on without what it would have read
