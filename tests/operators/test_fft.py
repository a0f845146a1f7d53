"""Fourier transforms in ONNX against NumPy: lengths that are and are not a power of two, static and dynamic."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from traced_models import run_model, run_traced_model, trace_model

RELATIVE_TOLERANCE = 2e-6  # of the largest magnitude, in float32, up to a length of 300


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def assert_transform(outputs, name, expected):
    actual = outputs[f"{name}_real"] + 1j * outputs[f"{name}_imag"]
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= RELATIVE_TOLERANCE * np.abs(expected).max()


class Transforms(layers.Layer):
    """Layer that applies operations to its inputs: outside a layer, Keras requires static lengths."""

    def __init__(self, **operations):
        super().__init__()
        self.operations = operations

    def call(self, x):
        pairs = {name: operation(x) for name, operation in self.operations.items()}
        return {f"{name}_{part}": pair[i] for name, pair in pairs.items() for i, part in enumerate(("real", "imag"))}


def split_complex(transform):
    """Return a transform of TensorFlow as a function from and to pairs of real and imaginary parts."""

    def operation(parts):
        transformed = transform(tf.complex(*parts))
        return tf.math.real(transformed), tf.math.imag(transformed)

    return operation


TRANSFORMS = {
    "fft": (ops.fft, np.fft.fft),
    "fft2": (ops.fft2, np.fft.fft2),
    "ifft2": (ops.ifft2, np.fft.ifft2),  # Keras computes it by a forward transform
    "tf_ifft": (split_complex(tf.signal.ifft), np.fft.ifft),
    "tf_ifft2d": (split_complex(tf.signal.ifft2d), np.fft.ifft2),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 12], ids=["power of two", "other length"])
def test_complex_transforms_equal_numpy(size, tmp_path):
    parts = [keras.Input((None, size), name=part) for part in "ab"]
    transforms = Transforms(**{name: operation for name, (operation, _) in TRANSFORMS.items()})
    model = trace_model(keras.Model(parts, transforms(parts)), tmp_path).model
    for length in (1, 5, 8, 300):
        a, b = draw(2, length, size), draw(2, length, size)[::-1]
        outputs = run_model(model, a=a, b=b)
        for name, (_, reference) in TRANSFORMS.items():
            assert_transform(outputs, name, reference(a + 1j * b))


@pytest.mark.slow
@pytest.mark.parametrize("size", [12, None], ids=["static", "dynamic"])
def test_real_transforms_equal_numpy(size, tmp_path):
    x, lengths = keras.Input((3, size), name="x"), {"power": 16, "shorter": 10, "longer": 40, "whole": None}
    operations = {name: lambda x, length=length: ops.rfft(x, length) for name, length in lengths.items()}
    model = trace_model(keras.Model(x, Transforms(**operations)(x)), tmp_path).model
    for samples in (12,) if size else (1, 12, 33):
        x = draw(2, 3, samples)
        outputs = run_model(model, x=x)
        for name, length in lengths.items():
            assert_transform(outputs, name, np.fft.rfft(x, length))


REAL_TRANSFORMS = {
    "rfft": ops.rfft,
    "fft": lambda x: ops.fft((x, ops.zeros_like(x))),
    "fft2": lambda x: ops.fft2((x, ops.zeros_like(x))),
    "tf_ifft": lambda x: split_complex(tf.signal.ifft)((x, ops.zeros_like(x))),
}


@pytest.mark.parametrize("size", [16, 12])
def test_first_and_middle_frequency_of_real_inputs_are_real(size, tmp_path):
    """No rounding limit allows an imaginary part in elements whose exact imaginary part is zero."""
    x = keras.Input((size, size), name="x")
    outputs = run_traced_model(keras.Model(x, Transforms(**REAL_TRANSFORMS)(x)), {"x": draw(3, size, size)}, tmp_path)
    frequencies = [0, size // 2]
    for name in REAL_TRANSFORMS:
        imaginary = outputs[f"{name}_imag"]
        elements = imaginary[:, frequencies][..., frequencies] if name == "fft2" else imaginary[..., frequencies]
        np.testing.assert_array_equal(elements, np.zeros_like(elements))
        assert np.abs(imaginary[..., 1]).min() > 1e-3 / size
