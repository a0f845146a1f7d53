"""Decoders whose step keeps a cache of `MultiHeadAttention`, one that grows and one of fixed capacity."""

import keras
from decoding_models import TOKENS, draw_weights
from keras import layers, ops

from keras_attn import DotProductAttention, MultiHeadAttention, RotaryEmbedding

WIDTH, HEADS, CAPACITY, BLOCKS = 8, 2, 9, 2
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
        x, present = _block(x, past, f"attend_{n}")
        inputs += past.values()
        for name, part in PARTS.items():
            outputs[f"present.{n}.{name}"] = present[part]
            state[f"present.{n}.{name}"] = f"past_key_values.{n}.{name}"
    outputs["logits"] = layers.Dense(TOKENS, name="answer")(ops.squeeze(x, 1))
    step = keras.Model(inputs, outputs, name="step")
    _drawn(seed, encoder, step)
    return encoder, step, state


def fixed_caches(seed=2):
    """A prompt of ids makes a cache with room for the answer, behind as many steps as the prompt has."""
    write = layers.Embedding(TOKENS, WIDTH, name="write")
    attend = _attention("attend")
    ids = keras.Input((4,), dtype="int32", name="ids")
    lens, last = (keras.Input((), dtype="int32", name=name) for name in ("lens", "last"))
    prompt = write(ids)
    made = attend.precompute(prompt, prompt, capacity=CAPACITY)
    encoder = keras.Model([ids, lens, last], {**made, "length": ops.minimum(made["length"], lens)}, name="encoder")
    token, length = (keras.Input((), dtype="int32", name=name) for name in ("token", "length"))
    past = {part: keras.Input((HEADS, CAPACITY, SIZE), name=part) for part in PARTS.values()} | {"length": length}
    x, present = _block(ops.expand_dims(write(token), 1), past, attend)
    logits = layers.Dense(TOKENS, name="answer")(ops.squeeze(x, 1))
    # an output that is called like an input
    step = keras.Model({"token": token, **past}, {"logits": logits, **present}, name="step")
    _drawn(seed, encoder, step)
    return encoder, step, {name: name for name in past}


def _drawn(seed, encoder, step):
    """Weights that give answers that differ, and no token all the probability."""
    draw_weights(seed, encoder, step)
    for weight in step.get_layer("answer").weights:
        weight.assign(weight * 0.01)


def _attention(name):
    attend = MultiHeadAttention(DotProductAttention(), HEADS, process_heads=RotaryEmbedding(), name=name)
    attend.build((None, 1, WIDTH), (None, None, WIDTH), (None, None, WIDTH))
    return attend


def _block(x, past, attend):
    attend = _attention(attend) if isinstance(attend, str) else attend
    present = attend.append(past, x, x)
    return x + attend(x, present, use_causal_mask=True), present
