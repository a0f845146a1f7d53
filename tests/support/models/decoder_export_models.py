"""Parts of decoders as further rows of the table of export_models.py: score biases, positions and key/value caches."""

import keras
import numpy as np
from export_models import ExportCase, build_attention_inputs

from keras_attn import (
    AdditiveAttention,
    DotProductAttention,
    LinearBias,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryEmbedding,
)


def bias_of_pairs():
    q, k, v, lens = build_attention_inputs(keys=6)
    bias = keras.Input((None, None), name="bias")
    out = AdditiveAttention(7, name="sum")(q, k, v, lens, score_bias=bias)
    attention = DotProductAttention(name="product")
    products, weights = attention(q, k, v, lens, score_bias=bias, return_attention_scores=True)
    return keras.Model([q, k, v, lens, bias], {"sum": out, "product": products, "weights": weights})


def bias_of_positions():
    """Build a model with the position bias of T5, and then with that of ALiBi."""
    x, lens = keras.Input((None, 8), name="x"), keras.Input((), dtype="int32", name="valid_lens")
    learned = RelativePositionBias(4, num_buckets=8, max_distance=16, name="learned")(x, x)
    y = MultiHeadAttention(DotProductAttention(scale=1.0), 4, name="first")(x, x, x, lens, score_bias=learned)
    decreasing = LinearBias(4, name="falling")(y, y)
    heads = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=2, name="second")
    return keras.Model([x, lens], heads(y, y, y, lens, score_bias=decreasing, use_causal_mask=True))


def queries_from_an_offset():
    q, k, v, _ = build_attention_inputs(keys=6)
    first = keras.Input((), dtype="int32", name="first")
    attention = DotProductAttention(name="attention")
    return keras.Model([q, k, v, first], attention(q, k, v, use_causal_mask=True, window=(3, 0), offset=first))


def step(capacity):
    layer = MultiHeadAttention(
        DotProductAttention(), 4, num_kv_heads=2, process_heads=RotaryEmbedding(), name="attention"
    )
    layer.build((None, 1, 16), (None, 1, 16), (None, 1, 16))
    step_input = keras.Input((1, 16), name="x")
    state = {name: keras.Input((2, capacity, 4), name=name) for name in ("projected_keys", "projected_values")}
    if capacity:
        state["length"] = keras.Input((), dtype="int32", name="length")
    appended = layer.append(state, step_input, step_input)
    output, weights = layer(step_input, appended, use_causal_mask=True, return_attention_scores=True)
    next_state = {f"next_{name}": tensor for name, tensor in appended.items()}
    return keras.Model({"x": step_input, **state}, {"output": output, "weights": weights, **next_state})


def step_of_a_growing_state():
    return step(None)


def step_of_fixed_capacity():
    return step(6)


DECODER_PARTS = {
    "bias of pairs": ExportCase(bias_of_pairs),
    "bias of positions": ExportCase(bias_of_positions),
    "queries from an offset": ExportCase(queries_from_an_offset, lambda: {"first": np.array([0, 3, 7], "int32")}),
    "step of a growing state": ExportCase(step_of_a_growing_state),
    "step of fixed capacity": ExportCase(step_of_fixed_capacity),
}
