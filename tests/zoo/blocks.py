"""Parts that several architectures are made of."""

from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops


class Positions(L.Layer):
    """Adds a learned vector to each position (Gehring et al., 2017): x_i + p_i."""

    def __init__(self, longest=256, **options):
        super().__init__(**options)
        self.supports_masking = True
        self.longest = longest

    def build(self, input_shape):
        self.table = self.add_weight((self.longest, input_shape[-1]), initializer="random_normal", name="table")

    def call(self, x):
        return x + self.table[: ops.shape(x)[1]]


class Waves(L.Layer):
    """Adds sines and cosines of each position (Vaswani et al., 2017)."""

    def __init__(self, **options):
        super().__init__(**options)
        self.supports_masking = True

    def call(self, x):
        size = x.shape[-1]
        rates = ops.exp(ops.arange(0, size, 2, dtype="float32") * (-9.21034 / size))
        angles = ops.expand_dims(ops.arange(ops.shape(x)[1], dtype="float32"), -1) * rates
        return x + ops.concatenate([ops.sin(angles), ops.cos(angles)], -1)


class Learned(L.Layer):
    """A learned vector of the size of the features, the same for each sample: a seed, a class token."""

    def build(self, input_shape):
        self.vector = self.add_weight((1, 1, input_shape[-1]), initializer="random_normal", name="vector")

    def call(self, x):
        return ops.broadcast_to(self.vector, (ops.shape(x)[0], 1, x.shape[-1]))


def prepended(x):
    """A sequence behind a learned vector, as BERT's and ViT's class token."""
    return L.Concatenate(axis=1)([Learned()(x), x])


def feed_forward(x, hidden, activation="gelu"):
    """Two dense layers, back to the size that came."""
    return L.Dense(x.shape[-1])(L.Dense(hidden, activation=activation)(x))


def post_norm_block(x, heads, hidden, activation="relu", **masks):
    """A transformer encoder's block (Vaswani et al., 2017): normalization after each sum."""
    size = x.shape[-1] // heads
    x = L.LayerNormalization(epsilon=1e-6)(x + L.MultiHeadAttention(heads, size, dropout=0.1)(x, x, **masks))
    return L.LayerNormalization(epsilon=1e-6)(x + L.Dropout(0.1)(feed_forward(x, hidden, activation)))


def pre_norm_block(x, heads, hidden, activation="gelu", **masks):
    """The same with normalization before each part (Xiong et al., 2020), as in ViT and GPT-2."""
    y = L.LayerNormalization(epsilon=1e-6)(x)
    x = x + L.MultiHeadAttention(heads, x.shape[-1] // heads, dropout=0.1)(y, y, **masks)
    return x + feed_forward(L.LayerNormalization(epsilon=1e-6)(x), hidden, activation)


def conv_block(x, filters, kernel=3, strides=1, activation="relu", **options):
    """Convolution, batch normalization, activation."""
    x = L.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False, **options)(x)
    return L.Activation(activation)(L.BatchNormalization()(x))
