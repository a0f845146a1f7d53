"""Families of keras.applications, each with its smallest member for small images."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras import applications as K  # noqa: N812
from keras import layers as L  # noqa: N812 - used in every line of the models

from .registry import LOW_PRECISIONS, add_architecture

FAMILIES: dict[str, Callable[..., keras.Model]] = {}
NIGHTLY = ("dense_net", "inception_residual_net", "nas_net_mobile", "conv_next")


def add_member(name: str, source: str, application: Any, size: int = 32, precisions: Any = (), **options: Any):
    """Add a member of a family: with Keras's random weights, average pooling and a classifier of five classes."""

    def build() -> keras.Model:
        image = keras.Input((size, size, 3), name="image")
        body = application(weights=None, include_top=False, pooling="avg", input_tensor=image, **options)
        return keras.Model(image, {"classes": L.Dense(5, activation="softmax", name="classes")(body.output)})

    FAMILIES[name] = application
    add_architecture("applications", name, source, build, precisions=precisions, nightly=name in NIGHTLY)


add_member("mobile_net", "Howard et al., 2017: MobileNets.", K.MobileNet, alpha=0.25, precisions=LOW_PRECISIONS)
add_member("mobile_net_v2", "Sandler et al., 2018: MobileNetV2.", K.MobileNetV2, alpha=0.35)
add_member("mobile_net_v3_small", "Howard et al., 2019: MobileNetV3, small.", K.MobileNetV3Small, alpha=0.75)
add_member(
    "mobile_net_v3_large",
    "Howard et al., 2019: MobileNetV3, large and minimalistic.",
    K.MobileNetV3Large,
    alpha=0.75,
    minimalistic=True,
)
add_member("efficient_net", "Tan and Le, 2019: EfficientNet.", K.EfficientNetB0, precisions=LOW_PRECISIONS)
add_member("efficient_net_v2", "Tan and Le, 2021: EfficientNetV2.", K.EfficientNetV2B0)
add_member("residual_net", "He et al., 2016: Deep Residual Learning for Image Recognition.", K.ResNet50)
add_member("residual_net_v2", "He et al., 2016: Identity Mappings in Deep Residual Networks.", K.ResNet50V2)
add_member("dense_net", "Huang et al., 2017: Densely Connected Convolutional Networks.", K.DenseNet121)
add_member("inception_v3", "Szegedy et al., 2016: Rethinking the Inception Architecture.", K.InceptionV3, 75)
add_member("inception_residual_net", "Szegedy et al., 2017: Inception-v4, Inception-ResNet.", K.InceptionResNetV2, 75)
add_member("xception", "Chollet, 2017: Xception.", K.Xception, 71)
add_member("vgg", "Simonyan and Zisserman, 2015: Very Deep Convolutional Networks.", K.VGG16)
add_member("nas_net_mobile", "Zoph et al., 2018: NASNet, Learning Transferable Architectures.", K.NASNetMobile)
add_member("conv_next", "Liu et al., 2022: A ConvNet for the 2020s.", K.ConvNeXtTiny)


# Uses that Keras's documentation shows: default arguments, bodies for images of any size, and bodies with new classes.
# `test_zoo` exports these models; docs/models.md has the members only. Keras runs NASNet at 224 x 224 pixels only.
BODY = {"weights": None, "include_top": False}


def transfer_learning(application: Callable[..., keras.Model], **options: Any) -> keras.Model:
    """Build augmentation, a body and a classifier of new classes, as in Keras's guide to transfer learning."""
    image = keras.Input((None, None, 3), name="image")
    augmented = L.RandomRotation(0.1)(L.RandomFlip("horizontal")(image))
    features = application(**BODY, **options)(L.Rescaling(1 / 127.5, offset=-1)(augmented), training=False)
    return keras.Model(image, L.Dense(5, name="classes")(L.Dropout(0.2)(L.GlobalAveragePooling2D()(features))))


SMALL = {
    "small_body": partial(K.MobileNetV2, **BODY, alpha=0.35),
    "small_transfer": partial(transfer_learning, K.MobileNetV2, alpha=0.35),
}
BODIES = ("mobile_net_v2", "mobile_net_v3_small", "efficient_net", "residual_net")
DOCUMENTED = {
    **{f"{name}_default": partial(application, weights=None) for name, application in FAMILIES.items()},
    **{f"{name}_body": partial(application, **BODY) for name, application in FAMILIES.items()},
    **{f"{name}_transfer": partial(transfer_learning, FAMILIES[name]) for name in BODIES},
}
