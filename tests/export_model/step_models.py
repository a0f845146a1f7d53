"""A decoder whose step keeps caches of `MultiHeadAttention` that grow."""

import keras
from decoding_models import TOKENS, draw_weights
from keras import layers, ops

from keras_attn import DotProductAttention, MultiHeadAttention, RotaryEmbedding

WIDTH, HEADS, BLOCKS = 8, 2, 2
SIZE = WIDTH // HEADS
PARTS = {"key": "projected_keys", "value": "projected_values"}  # as others call them


def growing_caches(seed=4):
    """Two blocks with caches that begin empty, called as others call them, and a position that is added."""
    first = keras.Input((WIDTH,), name="first")
    encoder = keras.Model({"first": first}, {"context": layers.Dense(WIDTH, name="begin")(first)}, name="encoder")
    token, position = (keras.Input((), dtype="int32", name=name) for name in ("token", "position"))
    context = keras.Input((WIDTH,), name="context")
    x = layers.Embedding(TOKENS, WIDTH, name="write")(token) + context
    x = ops.expand_dims(x + ops.expand_dims(ops.cast(position, "float32"), 1) / 7, 1)
    inputs, outputs, state = [token, position, context], {}, {}
    for n in range(BLOCKS):
        past = {
            part: keras.Input((HEADS, None, SIZE), name=f"past_key_values.{n}.{name}") for name, part in PARTS.items()
        }
        attend = MultiHeadAttention(DotProductAttention(), HEADS, process_heads=RotaryEmbedding(), name=f"attend_{n}")
        attend.build((None, 1, WIDTH), (None, None, WIDTH), (None, None, WIDTH))
        present = attend.append(past, x, x)
        x += attend(x, present, use_causal_mask=True)
        inputs += past.values()
        for name, part in PARTS.items():
            outputs[f"present.{n}.{name}"] = present[part]
            state[f"present.{n}.{name}"] = f"past_key_values.{n}.{name}"
    outputs["logits"] = layers.Dense(TOKENS, name="answer")(ops.squeeze(x, 1))
    step = keras.Model(inputs, outputs, name="step")
    draw_weights(seed, encoder, step)
    for weight in step.get_layer("answer").weights:  # so that no token has all the probability
        weight.assign(weight * 0.01)
    return encoder, step, state
