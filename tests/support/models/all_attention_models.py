"""Small models that between them have each kind of attention layer, for tests of what runs where."""

import keras
from keras import layers

from keras_attn import (
    AdditiveAttention,
    BilinearAttention,
    CosineAttention,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
)


def three_layers():
    """Additive scores and dot products with padding, one with its weights, and heads with a causal mask."""
    x = keras.Input((None, 8), name="x")
    lengths = keras.Input((), dtype="int32", name="lengths")
    found = AdditiveAttention(6, name="additive")(x, x, x, lengths)
    found, weights = DotProductAttention(name="dot")(found, x, x, lengths, return_attention_scores=True)
    heads = MultiHeadAttention(DotProductAttention(), num_heads=2, key_dim=8, name="heads")
    found = layers.Dense(3, name="dense")(heads(found, found, found, use_causal_mask=True))
    return keras.Model([x, lengths], {"found": found, "weights": weights}, name="three_layers")


def scores():
    """Other scores, other normalizers, a mask of pairs, and keys that heads share."""
    x, mask = keras.Input((None, 6), name="x"), keras.Input((None, None), dtype="bool", name="pairs")
    sparse, sigmoid = DotProductAttention(normalizer="sparsemax"), DotProductAttention(normalizer="sigmoid")
    shared = MultiHeadAttention(DotProductAttention(), num_heads=4, key_dim=4, num_kv_heads=2)
    kinds = [BilinearAttention(), CosineAttention(), GaussianAttention(), sparse, sigmoid, shared]
    return keras.Model([x, mask], [kind(x, x, x, attention_mask=mask) for kind in kinds])


def block():
    """A block of a Transformer, of Keras's own layers."""
    x = keras.Input((None, 8), name="x")
    y = x + layers.MultiHeadAttention(2, 4)(*[layers.LayerNormalization()(x)] * 2, use_causal_mask=True)
    y = y + layers.Dense(8)(layers.Dense(12, activation="gelu")(layers.LayerNormalization()(y)))
    return keras.Model(x, layers.Dense(5, activation="softmax")(y))


def convolutions():
    image = keras.Input((None, None, 3), name="image")
    x = layers.MaxPooling2D()(layers.Conv2D(4, 3, padding="same", activation="relu")(image))
    x = layers.DepthwiseConv2D(3, activation="silu")(layers.BatchNormalization()(x))
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def recurrent(layer=layers.LSTM):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(11, 4)(ids)
    return keras.Model(ids, layers.Bidirectional(layer(5, return_sequences=True))(x))
