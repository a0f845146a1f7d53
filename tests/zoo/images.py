"""Images to classes, and clouds of points."""

import keras
import numpy as np
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .blocks import Patches, Positions, conv_block, feed_forward, post_norm_block, pre_norm_block, prepended
from .registry import HALF, architecture


def classes(x, count=10):
    return {"classes": L.Dense(count, activation="softmax", name="classes")(x)}


@architecture(precisions=HALF)
def vision_transformer(image=(32, 32, 3)):
    """Dosovitskiy et al., 2021: An Image is Worth 16x16 Words."""
    x = L.Reshape((16, 32))(L.Conv2D(32, 8, strides=8, name="patches")(image))
    x = Positions(17)(prepended(x))
    for _ in range(2):
        x = pre_norm_block(x, 4, 64)
    return classes(L.LayerNormalization(epsilon=1e-6)(x)[:, 0])


@architecture()
def mlp_mixer(image=(24, 24, 3)):
    """Tolstikhin et al., 2021: MLP-Mixer."""
    x = L.Dense(32)(Patches(6)(image))
    for _ in range(2):
        y = L.Permute((2, 1))(L.LayerNormalization()(x))
        x = x + L.Permute((2, 1))(feed_forward(y, 24))
        x = x + feed_forward(L.LayerNormalization()(x), 48)
    return classes(L.GlobalAveragePooling1D()(x))


class FourierMix(L.Layer):
    """The real part of the Fourier transform over positions and features (Lee-Thorp et al., 2022)."""

    def call(self, x):
        return ops.fft2((x, ops.zeros_like(x)))[0]


@architecture()
def fourier_mixer(image=(24, 24, 3)):
    """Keras examples, Image classification with modern MLP models: FNet on patches (Lee-Thorp et al., 2022)."""
    x = Positions(16)(L.Dense(24)(Patches(6)(image)))
    for _ in range(2):
        x = L.LayerNormalization()(x + FourierMix()(x))
        x = L.LayerNormalization()(x + feed_forward(x, 48))
    return classes(L.GlobalAveragePooling1D()(x))


class WindowAttention(L.Layer):
    """Attention within squares, with a learned bias for each offset between two places (Liu et al., 2021, eq. 4)."""

    def __init__(self, size, heads, shift=0, **options):
        super().__init__(**options)
        self.size, self.heads, self.shift = size, heads, shift

    def build(self, input_shape):
        _, height, width, channels = input_shape
        self.project, self.out = L.Dense(3 * channels), L.Dense(channels)
        self.project.build(input_shape)
        self.out.build(input_shape)
        places = np.stack(np.meshgrid(range(self.size), range(self.size), indexing="ij"), -1).reshape(-1, 2)
        offsets = places[:, None] - places[None] + self.size - 1
        self.offsets = (offsets[..., 0] * (2 * self.size - 1) + offsets[..., 1]).astype("int32")
        self.bias = self.add_weight(((2 * self.size - 1) ** 2, self.heads), initializer="random_normal", name="bias")
        # after a shift, places that were on opposite edges lie in one window: they must not see each other
        bands = [np.searchsorted([n - self.size, n - self.shift], range(n), "right") for n in (height, width)]
        regions = (3 * bands[0][:, None] + bands[1][None]).reshape(1, height, width, 1)
        cut = self.windows(regions, np)[..., 0]
        self.apart = np.where(cut[:, :, None] == cut[:, None, :], 0.0, -100.0).astype("float32")[:, None]

    def windows(self, x, ops=ops):
        s, (_, height, width, channels) = self.size, x.shape
        x = ops.reshape(x, (-1, height // s, s, width // s, s, channels))
        return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, s * s, channels))

    def call(self, x):
        _, height, width, channels = x.shape
        s, count = self.size, (height // self.size) * (width // self.size)
        windows = self.windows(ops.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x)
        parts = ops.reshape(self.project(windows), (-1, s * s, 3, self.heads, channels // self.heads))
        q, k, v = ops.unstack(ops.transpose(parts, (2, 0, 3, 1, 4)), 3)
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) * (channels // self.heads) ** -0.5
        scores = scores + ops.transpose(ops.take(self.bias, self.offsets, axis=0), (2, 0, 1))
        if self.shift:
            parted = ops.reshape(scores, (-1, count, self.heads, s * s, s * s)) + self.apart
            scores = ops.reshape(parted, (-1, self.heads, s * s, s * s))
        mixed = ops.transpose(ops.matmul(ops.softmax(scores), v), (0, 2, 1, 3))
        y = ops.reshape(
            self.out(ops.reshape(mixed, (-1, s * s, channels))), (-1, height // s, width // s, s, s, channels)
        )
        y = ops.reshape(ops.transpose(y, (0, 1, 3, 2, 4, 5)), (-1, height, width, channels))
        return ops.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y


@architecture()
def swin_transformer(image=(32, 32, 3)):
    """Liu et al., 2021: Swin Transformer, Hierarchical Vision Transformer using Shifted Windows."""
    x = L.LayerNormalization(epsilon=1e-5)(L.Conv2D(16, 4, strides=4)(image))
    for stage, heads in enumerate((2, 4)):
        for shift in (0, 2):
            window = 4 if x.shape[1] > 4 else x.shape[1]
            shift = shift if window < x.shape[1] else 0
            x = x + WindowAttention(window, heads, shift)(L.LayerNormalization(epsilon=1e-5)(x))
            x = x + feed_forward(L.LayerNormalization(epsilon=1e-5)(x), 4 * x.shape[-1])
        if stage == 0:
            parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
            x = L.Dense(32, use_bias=False)(L.LayerNormalization(epsilon=1e-5)(L.Concatenate()(parts)))
    return classes(L.GlobalAveragePooling2D()(L.LayerNormalization(epsilon=1e-5)(x)))


def transform(points, size):
    """PointNet's T-net: a matrix from all points, by which each is multiplied."""
    x = points
    for filters in (16, 32):
        x = L.ReLU()(L.BatchNormalization()(L.Conv1D(filters, 1)(x)))
    x = L.Dense(16, activation="relu")(L.GlobalMaxPooling1D()(x))
    matrix = L.Reshape((size, size))(L.Dense(size * size, bias_initializer=keras.initializers.RandomNormal())(x))
    return L.Dot((2, 1))([points, matrix])


@architecture()
def point_net(points=(None, 3)):
    """Qi et al., 2017: PointNet, Deep Learning on Point Sets."""
    x = L.Conv1D(16, 1, activation="relu")(transform(points, 3))
    x = L.Conv1D(48, 1, activation="relu")(transform(x, 16))
    x = L.Dropout(0.3)(L.Dense(24, activation="relu")(L.GlobalMaxPooling1D()(x)))
    return classes(x)


@architecture()
def shuffle_net(image=(24, 24, 3)):
    """Zhang et al., 2018: ShuffleNet, grouped convolutions with channels shuffled between."""
    x = conv_block(image, 24, strides=2)
    for _ in range(2):
        y = conv_block(x, 24, 1, groups=3)
        _, height, width, channels = y.shape
        y = ops.transpose(ops.reshape(y, (-1, height, width, 3, channels // 3)), (0, 1, 2, 4, 3))
        y = L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same")(ops.reshape(y, (-1, height, width, channels))))
        x = L.ReLU()(x + L.BatchNormalization()(L.Conv2D(24, 1, groups=3)(y)))
    return classes(L.GlobalAveragePooling2D()(x))


@architecture()
def video_transformer(frames=(None, 16, 16, 3)):
    """Keras examples, Video Classification with Transformers: features of frames, encoded and pooled."""
    x = L.TimeDistributed(L.Conv2D(12, 3, strides=2, activation="relu"))(frames)
    x = Positions(128)(L.TimeDistributed(L.GlobalAveragePooling2D())(x))
    return classes(L.GlobalMaxPooling1D()(post_norm_block(x, 2, 24, "gelu")))
