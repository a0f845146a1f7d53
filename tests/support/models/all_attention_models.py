"""Small models that together have every kind of attention layer, for tests of onnxruntime releases and providers."""

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


def build_three_layers():
    """Build a model of additive and dot-product attention with padding, and of heads with a causal mask."""
    x = keras.Input((None, 8), name="x")
    lengths = keras.Input((), dtype="int32", name="lengths")
    context = AdditiveAttention(6, name="additive")(x, x, x, lengths)
    context, weights = DotProductAttention(name="dot")(context, x, x, lengths, return_attention_scores=True)
    heads = MultiHeadAttention(DotProductAttention(), num_heads=2, key_dim=8, name="heads")
    context = layers.Dense(3, name="dense")(heads(context, context, context, use_causal_mask=True))
    return keras.Model([x, lengths], {"found": context, "weights": weights}, name="three_layers")


def build_score_variants():
    """Build a model of the further scores and normalizers, of an attention mask, and of grouped heads."""
    x, mask = keras.Input((None, 6), name="x"), keras.Input((None, None), dtype="bool", name="pairs")
    sparse, sigmoid = DotProductAttention(normalizer="sparsemax"), DotProductAttention(normalizer="sigmoid")
    shared = MultiHeadAttention(DotProductAttention(), num_heads=4, key_dim=4, num_kv_heads=2)
    kinds = [BilinearAttention(), CosineAttention(), GaussianAttention(), sparse, sigmoid, shared]
    return keras.Model([x, mask], [kind(x, x, x, attention_mask=mask) for kind in kinds])


def build_transformer_block():
    """Build a block of a Transformer from Keras's own layers."""
    x = keras.Input((None, 8), name="x")
    y = x + layers.MultiHeadAttention(2, 4)(*[layers.LayerNormalization()(x)] * 2, use_causal_mask=True)
    y = y + layers.Dense(8)(layers.Dense(12, activation="gelu")(layers.LayerNormalization()(y)))
    return keras.Model(x, layers.Dense(5, activation="softmax")(y))


def build_convolutions():
    image = keras.Input((None, None, 3), name="image")
    x = layers.MaxPooling2D()(layers.Conv2D(4, 3, padding="same", activation="relu")(image))
    x = layers.DepthwiseConv2D(3, activation="silu")(layers.BatchNormalization()(x))
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def build_recurrent_model(layer=layers.LSTM):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(11, 4)(ids)
    return keras.Model(ids, layers.Bidirectional(layer(5, return_sequences=True))(x))
