"""Sizes of golden cases: static shape inference accepts them, and layer outputs have a few positions."""

import keras
import numpy as np
import pytest
from golden import cases_of, integers, sequence
from keras import layers, ops


def image():
    return keras.Input((None, None, 2), name="x")


def twice(layer, options):
    """Stack two layers that read four positions each and halve their number."""
    return keras.Sequential([layer(**options, strides=2, padding="valid", name=name) for name in ("first", "second")])


class Encoder(layers.Layer):
    """Convolutions behind a rough formula of the output shape, as in encoders of keras_hub."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.body = twice(layers.Conv2D, {"filters": 2, "kernel_size": 4})

    def call(self, x):
        return self.body(x)

    def compute_output_shape(self, shape):
        return (shape[0], *(size and -(-size // 4) for size in shape[1:3]), 2)


WINDOWS = {
    "conv 2d": (image, lambda: twice(layers.Conv2D, {"filters": 2, "kernel_size": 4})),
    "depthwise 2d": (image, lambda: twice(layers.DepthwiseConv2D, {"kernel_size": 4})),
    "pooling": (image, lambda: twice(layers.AveragePooling2D, {"pool_size": 4})),
    "encoder": (image, Encoder),
    "spectrogram": (
        lambda: sequence(size=1),
        lambda: layers.STFTSpectrogram(frame_length=16, frame_step=8, window=None),
    ),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_have_three_positions_at_sizes_without_samples(window):
    make_input, make_layer = WINDOWS[window]
    x = make_input()
    cases = cases_of(keras.Model(x, make_layer()(x)))
    assert all(isinstance(size, str) for size in cases.axes["x"][:-1])
    base = next(case for case in cases.cases if case.name == "base")
    (output,) = base.outputs.values()
    assert min(output.shape[1:-1]) >= 3
    for case in cases.cases:  # kernels without a check return memory of the shape of the input
        (output,) = case.outputs.values()
        assert max(output.shape[1:-1]) < max(case.inputs["x"].shape[1:-1])
    assert {"x_length 1"} <= set(cases.refused)


def test_samples_set_the_scale_of_sizes():
    x = image()
    model = keras.Model(x, twice(layers.Conv2D, {"filters": 2, "kernel_size": 4})(x))
    cases = cases_of(model, {"x": np.ones((2, 40, 44, 2), "f")})
    assert cases.axes["x"] == ("batch", "x_length", "x_axis_2", 2)
    base = next(sizes for case, sizes in zip(cases.cases, cases.sizes, strict=True) if case.name == "base")
    assert (base["x_length"], base["x_axis_2"]) == (40, 44)


@pytest.mark.parametrize("limit", [5, 2])
def test_table_of_few_positions_limits_lengths(limit):
    table = layers.Lambda(lambda x: x + ops.slice(ops.ones((limit, 4)), (0, 0), (ops.shape(x)[1], 4)))
    ids = integers("ids", None)
    cases = cases_of(keras.Model(ids, table(layers.Embedding(9, 4)(ids))))
    assert cases.axes["ids"] == ("batch", "ids_length")
    assert {1, min(limit, 4)} <= {sizes["ids_length"] for sizes in cases.sizes}


def test_samples_that_static_inference_rejects_are_run():
    x = sequence()
    declares_less = layers.Lambda(lambda x: x * 2, lambda shape: (shape[0], shape[1] and shape[1] - 4, shape[2]))
    cases = cases_of(keras.Model(x, declares_less(x)), {"x": np.ones((2, 4, 4), "f")})
    assert cases.axes["x"] == ("batch", "x_length", 4)
    assert cases.cases[0].inputs["x"].shape == (2, 4, 4)
