"""Classification of images and videos."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .blocks import Positions, conv_block, post_norm_block, pre_norm_block, prepend_class_token
from .registry import LOW_PRECISIONS, architecture


def classify(x, count=10):
    return {"classes": L.Dense(count, activation="softmax", name="classes")(x)}


@architecture(precisions=LOW_PRECISIONS)
def vision_transformer(image=(32, 32, 3)):
    """Dosovitskiy et al., 2021: An Image is Worth 16x16 Words."""
    x = L.Reshape((16, 32))(L.Conv2D(32, 8, strides=8, name="patches")(image))
    x = Positions(17)(prepend_class_token(x))
    for _ in range(2):
        x = pre_norm_block(x, 4, 64)
    return classify(L.LayerNormalization(epsilon=1e-6)(x)[:, 0])


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
    return classify(L.GlobalAveragePooling2D()(x))


@architecture()
def video_transformer(frames=(None, 16, 16, 3)):
    """Keras examples, Video Classification with Transformers: features of frames, encoded and pooled."""
    x = L.TimeDistributed(L.Conv2D(12, 3, strides=2, activation="relu"))(frames)
    x = Positions(128)(L.TimeDistributed(L.GlobalAveragePooling2D())(x))
    return classify(L.GlobalMaxPooling1D()(post_norm_block(x, 2, 24, "gelu")))
