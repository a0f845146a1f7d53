"""Padding before a convolution: part of it where that is one of floats, and nowhere lost."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

AROUND = [[0, 0], [1, 2], [0, 1], [0, 0]]
IMAGES = np.random.default_rng(0).integers(-9, 9, (2, 7, 6, 4))


@pytest.mark.parametrize(
    ("dtype", "stride", "channels", "pads"),
    [("float32", 1, 4, 0), ("float32", 2, 2, 0), ("int32", 1, 4, 1)],  # of 2 channels: in two groups
)
def test_float_padding_becomes_part_of_the_convolution(dtype, stride, channels, pads):
    kernel = np.random.default_rng(1).integers(-3, 4, (3, 2, channels, 6)).astype(dtype)
    converted = Converted(
        lambda x: tf.nn.conv2d(tf.pad(tf.ensure_shape(x, (None, None, None, 4)), AROUND), kernel, stride, "VALID"),
        x=IMAGES.astype(dtype),
    )
    converted.assert_same()
    assert [node.op_type for node in converted.model.graph.node].count("Pad") == pads
