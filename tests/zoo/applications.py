"""Every family of keras.applications, by its smallest member at a small size of image."""

from typing import Any

import keras
from keras import applications as of_keras
from keras import layers as L  # noqa: N812 - these files consist of them

from .registry import HALF, add


def member(name: str, source: str, application: Any, size: int = 32, precisions: tuple[str, ...] = (), **options: Any):
    """Put a member on the list: with weights drawn by Keras, pooled, and five classes on top."""

    def make() -> keras.Model:
        image = keras.Input((size, size, 3), name="image")
        body = application(weights=None, include_top=False, pooling="avg", input_tensor=image, **options)
        return keras.Model(image, {"classes": L.Dense(5, activation="softmax", name="classes")(body.output)})

    add("applications", name, source, make, precisions=precisions)


member("mobile_net", "Howard et al., 2017: MobileNets.", of_keras.MobileNet, alpha=0.25, precisions=HALF)
member("mobile_net_v2", "Sandler et al., 2018: MobileNetV2.", of_keras.MobileNetV2, alpha=0.35)
member("mobile_net_v3_small", "Howard et al., 2019: MobileNetV3, small.", of_keras.MobileNetV3Small, alpha=0.75)
member(
    "mobile_net_v3_large",
    "Howard et al., 2019: MobileNetV3, large and minimalistic.",
    of_keras.MobileNetV3Large,
    alpha=0.75,
    minimalistic=True,
)
member("efficient_net", "Tan and Le, 2019: EfficientNet.", of_keras.EfficientNetB0, precisions=HALF)
member("efficient_net_v2", "Tan and Le, 2021: EfficientNetV2.", of_keras.EfficientNetV2B0)
member("residual_net", "He et al., 2016: Deep Residual Learning for Image Recognition.", of_keras.ResNet50)
member("residual_net_v2", "He et al., 2016: Identity Mappings in Deep Residual Networks.", of_keras.ResNet50V2)
member("dense_net", "Huang et al., 2017: Densely Connected Convolutional Networks.", of_keras.DenseNet121)
member("inception_v3", "Szegedy et al., 2016: Rethinking the Inception Architecture.", of_keras.InceptionV3, 75)
member(
    "inception_residual_net", "Szegedy et al., 2017: Inception-v4, Inception-ResNet.", of_keras.InceptionResNetV2, 75
)
member("xception", "Chollet, 2017: Xception.", of_keras.Xception, 71)
member("vgg", "Simonyan and Zisserman, 2015: Very Deep Convolutional Networks.", of_keras.VGG16)
member("nas_net_mobile", "Zoph et al., 2018: NASNet, Learning Transferable Architectures.", of_keras.NASNetMobile)
member("conv_next", "Liu et al., 2022: A ConvNet for the 2020s.", of_keras.ConvNeXtTiny)
