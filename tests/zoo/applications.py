"""Every family of keras.applications, by its smallest member at a small size of image."""

from collections.abc import Callable
from typing import Any

import keras
from keras import layers as L  # noqa: N812 - these files consist of them

from .registry import HALF, architecture


def pooled(application: Callable[..., Any], size: int = 32, **options: Any) -> keras.Model:
    """A member with weights drawn by Keras, pooled, and five classes on top."""
    image = keras.Input((size, size, 3), name="image")
    body = application(weights=None, include_top=False, pooling="avg", input_tensor=image, **options)
    return keras.Model(image, {"classes": L.Dense(5, activation="softmax", name="classes")(body.output)})


@architecture(precisions=HALF)
def mobile_net():
    """Howard et al., 2017: MobileNets."""
    return pooled(keras.applications.MobileNet, alpha=0.25)


@architecture()
def mobile_net_v2():
    """Sandler et al., 2018: MobileNetV2, Inverted Residuals and Linear Bottlenecks."""
    return pooled(keras.applications.MobileNetV2, alpha=0.35)


@architecture()
def mobile_net_v3_small():
    """Howard et al., 2019: Searching for MobileNetV3, small."""
    return pooled(keras.applications.MobileNetV3Small, alpha=0.75, minimalistic=False)


@architecture()
def mobile_net_v3_large():
    """Howard et al., 2019: Searching for MobileNetV3, large and minimalistic."""
    return pooled(keras.applications.MobileNetV3Large, alpha=0.75, minimalistic=True)


@architecture(precisions=HALF)
def efficient_net():
    """Tan and Le, 2019: EfficientNet."""
    return pooled(keras.applications.EfficientNetB0)


@architecture()
def efficient_net_v2():
    """Tan and Le, 2021: EfficientNetV2, Smaller Models and Faster Training."""
    return pooled(keras.applications.EfficientNetV2B0)


@architecture()
def residual_net():
    """He et al., 2016: Deep Residual Learning for Image Recognition."""
    return pooled(keras.applications.ResNet50)


@architecture()
def residual_net_v2():
    """He et al., 2016: Identity Mappings in Deep Residual Networks."""
    return pooled(keras.applications.ResNet50V2)


@architecture()
def dense_net():
    """Huang et al., 2017: Densely Connected Convolutional Networks."""
    return pooled(keras.applications.DenseNet121)


@architecture()
def inception_v3():
    """Szegedy et al., 2016: Rethinking the Inception Architecture."""
    return pooled(keras.applications.InceptionV3, 75)


@architecture()
def inception_residual_net():
    """Szegedy et al., 2017: Inception-v4, Inception-ResNet and the Impact of Residual Connections."""
    return pooled(keras.applications.InceptionResNetV2, 75)


@architecture()
def xception():
    """Chollet, 2017: Xception, Deep Learning with Depthwise Separable Convolutions."""
    return pooled(keras.applications.Xception, 71)


@architecture()
def vgg():
    """Simonyan and Zisserman, 2015: Very Deep Convolutional Networks."""
    return pooled(keras.applications.VGG16)


@architecture()
def nas_net_mobile():
    """Zoph et al., 2018: Learning Transferable Architectures for Scalable Image Recognition."""
    return pooled(keras.applications.NASNetMobile)


@architecture()
def conv_next():
    """Liu et al., 2022: A ConvNet for the 2020s."""
    return pooled(keras.applications.ConvNeXtTiny)
