"""Segmentation, detection and generation of images."""

import keras
from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .blocks import conv_block
from .registry import LOW_PRECISIONS, architecture


@architecture(precisions=LOW_PRECISIONS)
def unet(image=(32, 32, 3)):
    """Ronneberger et al., 2015: U-Net, as in the Keras example on Oxford pets."""
    x, skips = image, []
    for filters in (8, 16):
        x = conv_block(conv_block(x, filters), filters)
        skips.append(x)
        x = L.MaxPooling2D()(x)
    x = conv_block(x, 32)
    for filters, skip in zip((16, 8), reversed(skips), strict=True):
        x = L.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
        x = conv_block(L.Concatenate()([x, skip]), filters)
    return {"mask": L.Conv2D(3, 1, activation="softmax")(x)}


@architecture()
def deep_lab(image=(32, 32, 3)):
    """Chen et al., 2018: DeepLabV3+, atrous spatial pyramid pooling and a decoder."""
    stem = conv_block(image, 12, strides=2)
    x = conv_block(conv_block(stem, 16, strides=2), 24)
    pooled = L.UpSampling2D(8, interpolation="bilinear")(conv_block(L.AveragePooling2D(8)(x), 16, 1))
    pyramid = [pooled, *(conv_block(x, 16, 3, dilation_rate=rate) for rate in (1, 2, 3))]
    x = L.UpSampling2D(2, interpolation="bilinear")(conv_block(L.Concatenate()(pyramid), 16, 1))
    x = conv_block(L.Concatenate()([x, conv_block(stem, 8, 1)]), 16)
    x = L.UpSampling2D(2, interpolation="bilinear")(x)
    return {"logits": L.Conv2D(5, 1, padding="same")(x)}


class DepthToSpace(L.Layer):
    """Rearrangement of r * r channels into r by r pixels, (B, H * r, W * r, C) (Shi et al., 2016, eq. 4)."""

    def __init__(self, block, **options):
        super().__init__(**options)
        self.block = block

    def call(self, x):
        r, (height, width) = self.block, (ops.shape(x)[1], ops.shape(x)[2])
        channels = x.shape[-1] // r**2
        x = ops.transpose(ops.reshape(x, (-1, height, width, r, r, channels)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, height * r, width * r, channels))


@architecture()
def sub_pixel_super_resolution(image=(None, None, 1)):
    """Shi et al., 2016: Real-Time Single Image Super-Resolution (ESPCN), images of any size."""
    x = L.Conv2D(16, 5, padding="same", activation="relu")(image)
    x = L.Conv2D(12, 3, padding="same", activation="relu")(x)
    return {"larger": DepthToSpace(3)(L.Conv2D(9, 3, padding="same")(x))}


@architecture()
def gan_generator(noise=(16,)):
    """Radford et al., 2016: Unsupervised Representation Learning with DCGANs, the generator."""
    x = L.Reshape((4, 4, 16))(L.Dense(256)(noise))
    for filters in (16, 8):
        x = L.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False)(x)
        x = L.LeakyReLU(negative_slope=0.2)(L.BatchNormalization()(x))
    return {"image": L.Conv2D(3, 5, padding="same", activation="tanh")(x)}


def build_tower(inputs):
    x = inputs
    for filters in (8, 16):
        x = L.MaxPooling2D()(L.Conv2D(filters, 3, activation="relu", padding="same")(x))
    x = L.Dense(16)(L.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, L.UnitNormalization()(x), name="tower")


@architecture()
def siamese_network(left=(24, 24, 1), right=(24, 24, 1)):
    """Koch et al., 2015: Siamese Neural Networks, two images through one network, distance and similarity."""
    shared = build_tower(keras.Input((24, 24, 1)))
    a, b = shared(left), shared(right)
    distance = ops.sqrt(ops.maximum(ops.sum(ops.square(a - b), -1, keepdims=True), 1e-7))
    return {"distance": distance, "cosine": L.Dot(-1)([a, b]), "same": L.Dense(1, activation="sigmoid")(distance)}


@architecture()
def captcha_reader(image=(None, 16, 1)):
    """Shi et al., 2017: An End-to-End Trainable Neural Network for Scene Text (CRNN), images of any width."""
    x = image
    for filters in (8, 16):
        x = L.MaxPooling2D(2)(L.Conv2D(filters, 3, activation="relu", padding="same")(x))
    x = L.Dense(16, activation="relu")(L.Reshape((-1, 4 * 16))(x))
    x = L.Bidirectional(L.LSTM(12, return_sequences=True, dropout=0.2))(x)
    return {"characters": L.Dense(12, activation="softmax")(x)}


@architecture()
def retina_net(image=(32, 32, 3)):
    """Lin et al., 2017: Focal Loss for Dense Object Detection, a feature pyramid with shared heads."""
    c3 = conv_block(image, 8, strides=4)
    c4 = conv_block(c3, 12, strides=2)
    p4 = L.Conv2D(12, 1)(c4)
    p3 = L.Conv2D(12, 1)(c3) + L.UpSampling2D(2)(p4)
    hidden, boxes, scores = (L.Conv2D(count, 3, padding="same") for count in (12, 8, 6))
    levels = [L.ReLU()(hidden(level)) for level in (p3, p4)]
    return {
        "boxes": L.Concatenate(axis=1)([L.Reshape((-1, 4))(boxes(level)) for level in levels]),
        "scores": L.Concatenate(axis=1)([L.Reshape((-1, 3))(scores(level)) for level in levels]),
    }


@architecture()
def diffusion_denoiser(image=(16, 16, 3), noise_variance=(1, 1, 1)):
    """Ho et al., 2020: Denoising Diffusion Probabilistic Models, the network for one step."""
    angles = noise_variance * ops.exp(ops.linspace(0.0, 5.0, 4))
    x = L.Concatenate()(
        [L.Conv2D(8, 1)(image), L.UpSampling2D(16)(ops.concatenate([ops.sin(angles), ops.cos(angles)], -1))]
    )
    for filters in (16, 24):
        y = L.Conv2D(filters, 3, padding="same", activation="swish")(L.GroupNormalization(4)(x))
        x = L.Conv2D(filters, 1)(x) + L.Conv2D(filters, 3, padding="same")(y)
    return {"noise": L.Conv2D(3, 1)(x)}
