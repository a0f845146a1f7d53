"""Parts of decoders that are exported as the models of export_models.py are: biases of scores, and states that grow."""

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
    products, weights = DotProductAttention(name="product")(
        q, k, v, lens, score_bias=bias, return_attention_scores=True
    )
    return keras.Model([q, k, v, lens, bias], {"sum": out, "product": products, "weights": weights})


def bias_of_positions():
    """As in T5 and in ALiBi, one after the other."""
    x, lens = keras.Input((None, 8), name="x"), keras.Input((), dtype="int32", name="valid_lens")
    learned = RelativePositionBias(4, num_buckets=8, max_distance=16, name="learned")(x, x)
    y = MultiHeadAttention(DotProductAttention(scale=1.0), 4, name="first")(x, x, x, lens, score_bias=learned)
    falling = LinearBias(4, name="falling")(y, y)
    attend = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=2, name="second")
    return keras.Model([x, lens], attend(y, y, y, lens, score_bias=falling, use_causal_mask=True))


def queries_from_an_offset():
    q, k, v, _ = build_attention_inputs(keys=6)
    first = keras.Input((), dtype="int32", name="first")
    attend = DotProductAttention(name="attention")
    return keras.Model([q, k, v, first], attend(q, k, v, use_causal_mask=True, window=(3, 0), offset=first))


def step(capacity):
    layer = MultiHeadAttention(
        DotProductAttention(), 4, num_kv_heads=2, process_heads=RotaryEmbedding(), name="attention"
    )
    layer.build((None, 1, 16), (None, 1, 16), (None, 1, 16))
    now = keras.Input((1, 16), name="x")
    state = {name: keras.Input((2, capacity, 4), name=name) for name in ("projected_keys", "projected_values")}
    if capacity:
        state["length"] = keras.Input((), dtype="int32", name="length")
    grown = layer.append(state, now, now)
    output, weights = layer(now, grown, use_causal_mask=True, return_attention_scores=True)
    given = {f"next_{name}": tensor for name, tensor in grown.items()}
    return keras.Model({"x": now, **state}, {"output": output, "weights": weights, **given})


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
