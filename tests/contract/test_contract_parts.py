"""Promises 2, 3 and 4 of position layers within heads, and of attention cells in a loop."""

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
HALVES = ("mixed_float16", "mixed_bfloat16")  # Keras cannot initialize recurrent cells in float16


class BiasedHeads:
    """Heads with a position bias of their scores, or with rotated heads."""

    def __init__(self, bias, process_heads=None):
        dtype = bias.dtype_policy if bias else process_heads.dtype_policy
        self.heads = MultiHeadAttention(
            DotProductAttention(dtype=dtype), HEADS, 4, process_heads=process_heads, dtype=dtype
        )
        self.heads.build((None, None, attention_cell_cases.Dx), *[(None, None, attention_cell_cases.Dm)] * 2)
        draw_weights(self.heads)
        self.bias, self.trainable_variables = bias, list(self.heads.trainable_variables)
        if bias:
            bias.build((None, None, attention_cell_cases.Dx))
            draw_weights(bias)
            self.trainable_variables += bias.trainable_variables

    def __call__(self, queries, memory, lengths):
        bias = self.bias(queries, memory) if self.bias else None
        return self.heads(queries, memory, memory, lengths, score_bias=bias, return_attention_scores=True)


class RecurrentLayer:
    """An attention cell over all steps."""

    def __init__(self, name, **options):
        self.layer = attention_cell_cases.build_cell(name, **options)
        self.trainable_variables = self.layer.trainable_variables

    def __call__(self, queries, memory, lengths):
        (output, *states), weights = self.layer(
            queries, memory, lengths, input_lens=attention_cell_cases.INPUT_LENS, return_attention_scores=True
        )
        return output, weights, *states


BUILDERS = {
    "RelativePositionBias": lambda **o: BiasedHeads(RelativePositionBias(HEADS, num_buckets=6, max_distance=9, **o)),
    "LinearBias": lambda **o: BiasedHeads(LinearBias(HEADS, **o)),
    "RotaryEmbedding": lambda **o: BiasedHeads(None, RotaryEmbedding(**o)),
    **{f"AttentionRNN {name}": lambda name=name, **o: RecurrentLayer(name, **o) for name in attention_cell_cases.CELLS},
}
every_part = pytest.mark.parametrize("make", BUILDERS.values(), ids=BUILDERS)


def draw_inputs(poison=None, scale=1.0, pads_steps=False):
    queries, memory = (scale * array for array in attention_cell_cases.draw_inputs())
    if pads_steps:
        queries = np.where(ENDED[..., None], np.float32(poison), queries)
    return queries, memory if poison is None else np.where(PADDED[..., None], np.float32(poison), memory)


def compile_layer(layer):
    """Return a function of queries and memory that lists output, weights, states, and gradients of their squares."""

    def loss(queries, memory):
        output, _, *states = layer(queries, memory, LENGTHS)
        return sum(ops.sum(ops.square(ops.cast(tensor, "float32"))) for tensor in (output, *states))

    differentiate = compute_gradients(loss, 2, layer.trainable_variables)
    program = compile_function(
        lambda *inputs: [*layer(*inputs, LENGTHS), *differentiate(*inputs)],
        "jit" if BACKEND == "jax" else "eager",  # on JAX an eager loop takes seconds
        variables=layer.trainable_variables,
    )
    return lambda *inputs: [to_numpy(tensor) for tensor in program(*map(ops.convert_to_tensor, inputs))]


def test_table_covers_every_layer_of_positions_and_cells():
    names = {name.split()[0] for name in BUILDERS} | {type(attention_cell_cases.build_cell("luong").cell).__name__}
    assert names == {layer.__name__ for layer in (*POSITION_LAYERS, *RECURRENT_LAYERS)}


@pytest.mark.slow
@every_part
def test_poison_in_padding_does_not_change_results(make):
    layer = make()
    program, pads_steps = compile_layer(layer), isinstance(layer, RecurrentLayer)
    clean, *dirty = (program(*draw_inputs(poison, pads_steps=pads_steps)) for poison in (0.0, np.nan, 1e30))
    for results in dirty:
        for actual, expected in zip(results, clean, strict=True):
            assert_identical(actual, expected)
    assert all(np.any(array != 0) for array in clean)
    output, weights, *gradients = clean
    memory_gradient = gradients[-1 - len(layer.trainable_variables)]
    assert LENGTHS[2] == 0
    assert not np.any(weights[2])
    assert not np.any(memory_gradient[2])
    assert np.all(output[2, :3] == 0) == isinstance(layer, BiasedHeads)  # a cell continues without a context


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), [(name, HALVES[n % 2]) for n, name in enumerate(BUILDERS)])
def test_half_precision_neither_leaks_nor_overflows(name, policy):
    program = compile_layer(BUILDERS[name](dtype=policy))
    results = program(*draw_inputs(0.0))
    for clean, dirty in zip(results, program(*draw_inputs(np.nan)), strict=True):
        assert_identical(dirty, clean)
        assert np.all(np.isfinite(clean))
    assert results[0].dtype == results[1].dtype == policy.removeprefix("mixed_")
    assert not np.any(results[1][2])
    sums = program(*draw_inputs(scale=30.0))[1].astype("float32").sum(axis=-1)
    np.testing.assert_allclose(sums[1], 1, atol=0.02)  # up to five rounded weights
    np.testing.assert_allclose(sums[0, ..., 0], 1, atol=0.02)
    assert not np.any(sums[2])


@pytest.mark.slow
@every_part
def test_fully_masked_memory_does_not_change_outputs(make):
    layer, (queries, memory) = make(), draw_inputs()
    assert LENGTHS[2] == 0
    other_memory = np.concatenate([memory[:2], 1 - memory[2:]])
    program = compile_layer(layer)
    (output, weights, *gradients), (other_output, *_) = program(queries, memory), program(queries, other_memory)
    assert_identical(other_output, output)
    assert not np.any(weights[2])
    memory_gradient = gradients[-1 - len(layer.trainable_variables)]
    assert not np.any(memory_gradient[2])
    assert np.all(np.isfinite(output))
    assert np.all(output[2, :3] == 0) == isinstance(layer, BiasedHeads)  # a cell continues without a context
