"""Layers and blocks that several architectures share."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops


class Positions(L.Layer):
    """Learned position embeddings (Gehring et al., 2017): x_i + p_i for x of shape (B, T, D)."""

    def __init__(self, max_length=256, **options):
        super().__init__(**options)
        self.supports_masking = True
        self.max_length = max_length

    def build(self, input_shape):
        self.table = self.add_weight((self.max_length, input_shape[-1]), initializer="random_normal", name="table")

    def call(self, x):
        return x + self.table[: ops.shape(x)[1]]


class SinusoidalPositions(L.Layer):
    """Sinusoidal position embeddings (Vaswani et al., 2017), added to x of shape (B, T, D)."""

    def __init__(self, **options):
        super().__init__(**options)
        self.supports_masking = True

    def call(self, x):
        size = x.shape[-1]
        rates = ops.exp(ops.arange(0, size, 2, dtype="float32") * (-9.21034 / size))  # 10000 ** (-2i / D)
        angles = ops.expand_dims(ops.arange(ops.shape(x)[1], dtype="float32"), -1) * rates
        return x + ops.concatenate([ops.sin(angles), ops.cos(angles)], -1)


class LearnedToken(L.Layer):
    """Learned token of shape (B, 1, D), the same in all rows: a seed or a class token."""

    def build(self, input_shape):
        self.vector = self.add_weight((1, 1, input_shape[-1]), initializer="random_normal", name="vector")

    def call(self, x):
        return ops.broadcast_to(self.vector, (ops.shape(x)[0], 1, x.shape[-1]))


def prepend_class_token(x):
    """Return a sequence (B, 1 + T, D) that begins with a learned class token, as in BERT and ViT."""
    return L.Concatenate(axis=1)([LearnedToken()(x), x])


def feed_forward(x, hidden, activation="gelu"):
    """Apply two dense layers; the result has the shape of `x`."""
    return L.Dense(x.shape[-1])(L.Dense(hidden, activation=activation)(x))


def post_norm_block(x, heads, hidden, activation="relu", **masks):
    """Apply a transformer encoder block with normalization after each sum (Vaswani et al., 2017)."""
    size = x.shape[-1] // heads
    x = L.LayerNormalization(epsilon=1e-6)(x + L.MultiHeadAttention(heads, size, dropout=0.1)(x, x, **masks))
    return L.LayerNormalization(epsilon=1e-6)(x + L.Dropout(0.1)(feed_forward(x, hidden, activation)))


def pre_norm_block(x, heads, hidden, activation="gelu", **masks):
    """Apply a block with normalization before attention and feed-forward layers (Xiong et al., 2020; ViT, GPT-2)."""
    y = L.LayerNormalization(epsilon=1e-6)(x)
    x = x + L.MultiHeadAttention(heads, x.shape[-1] // heads, dropout=0.1)(y, y, **masks)
    return x + feed_forward(L.LayerNormalization(epsilon=1e-6)(x), hidden, activation)


def conv_block(x, filters, kernel=3, strides=1, activation="relu", **options):
    """Apply convolution, batch normalization and activation."""
    x = L.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False, **options)(x)
    return L.Activation(activation)(L.BatchNormalization()(x))
