"""Fourier transforms in ONNX against NumPy's, of lengths that are a power of two and not, known and not."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from traced_models import onnx_outputs, run_model, trace_model

TOLERANCE = 2e-6  # of the largest magnitude, in float32, up to a length of 300


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def assert_parts(outputs, name, expected):
    got = outputs[f"{name}_real"] + 1j * outputs[f"{name}_imag"]
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


class Of(layers.Layer):
    """Operations of Keras on its inputs, by name; by themselves they would ask for known lengths."""

    def __init__(self, **operations):
        super().__init__()
        self.operations = operations

    def call(self, x):
        pairs = {name: operation(x) for name, operation in self.operations.items()}
        return {f"{name}_{part}": pair[i] for name, pair in pairs.items() for i, part in enumerate(("real", "imag"))}


def of_tensorflow(transform):
    def operation(parts):
        transformed = transform(tf.complex(*parts))
        return tf.math.real(transformed), tf.math.imag(transformed)

    return operation


TRANSFORMS = {
    "fft": (ops.fft, np.fft.fft),
    "fft2": (ops.fft2, np.fft.fft2),
    "ifft2": (ops.ifft2, np.fft.ifft2),  # which Keras computes forwards
    "tf_ifft": (of_tensorflow(tf.signal.ifft), np.fft.ifft),
    "tf_ifft2d": (of_tensorflow(tf.signal.ifft2d), np.fft.ifft2),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 12], ids=["a power of two", "none"])
def test_complex_transforms_equal_numpy(size, tmp_path):
    parts = [keras.Input((None, size), name=part) for part in "ab"]
    outputs = Of(**{name: operation for name, (operation, _) in TRANSFORMS.items()})(parts)
    model = trace_model(keras.Model(parts, outputs), tmp_path).model
    for length in (1, 5, 8, 300):
        a, b = drawn(2, length, size), drawn(2, length, size)[::-1]
        found = run_model(model, a=a, b=b)
        for name, (_, expected) in TRANSFORMS.items():
            assert_parts(found, name, expected(a + 1j * b))


@pytest.mark.slow
@pytest.mark.parametrize("size", [12, None], ids=["known", "unknown"])
def test_real_transforms_equal_numpy(size, tmp_path):
    x, lengths = keras.Input((3, size), name="x"), {"power": 16, "shorter": 10, "longer": 40, "whole": None}
    operations = {name: lambda x, length=length: ops.rfft(x, length) for name, length in lengths.items()}
    model = trace_model(keras.Model(x, Of(**operations)(x)), tmp_path).model
    for samples in (12,) if size else (1, 12, 33):
        x = drawn(2, 3, samples)
        found = run_model(model, x=x)
        for name, length in lengths.items():
            assert_parts(found, name, np.fft.rfft(x, length))


REAL_NUMBERS = {
    "rfft": ops.rfft,
    "fft": lambda x: ops.fft((x, ops.zeros_like(x))),
    "fft2": lambda x: ops.fft2((x, ops.zeros_like(x))),
    "tf_ifft": lambda x: of_tensorflow(tf.signal.ifft)((x, ops.zeros_like(x))),
}


@pytest.mark.parametrize("size", [16, 12])
def test_transforms_of_real_numbers_have_real_ends(size, tmp_path):
    """What else stands there has nothing beside it that it would be small against: no limit allows it."""
    x = keras.Input((size, size), name="x")
    found = onnx_outputs(keras.Model(x, Of(**REAL_NUMBERS)(x)), {"x": drawn(3, size, size)}, tmp_path)
    ends = [0, size // 2]
    for name in REAL_NUMBERS:
        imaginary = found[f"{name}_imag"]
        places = imaginary[:, ends][:, :, ends] if name == "fft2" else imaginary[..., ends]
        np.testing.assert_array_equal(places, np.zeros_like(places))
        assert np.abs(imaginary[..., 1]).min() > 1e-3 / size
