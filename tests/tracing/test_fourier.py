"""Fourier transforms in ONNX against NumPy's, of lengths that are a power of two and not, known and not."""

import keras
import numpy as np
import onnxruntime as ort
import pytest
import tensorflow as tf
from keras import layers, ops
from test_to_onnx import traced

from keras_attn_export import UnsupportedModelError, export_model

TOLERANCE = 2e-6  # of the largest magnitude, in float32, up to a length of 300


def run(model, **inputs):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs), strict=True))


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def assert_parts(outputs, expected):
    got = outputs["real"] + 1j * outputs["imag"]
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max()


class Of(layers.Layer):
    """An operation of Keras on its inputs; by itself it would ask for known lengths."""

    def __init__(self, operation, **options):
        super().__init__(**options)
        self.operation = operation

    def call(self, x):
        return dict(zip(("real", "imag"), self.operation(x), strict=True))


def of_tensorflow(transform):
    def operation(parts):
        transformed = transform(tf.complex(*parts))
        return tf.math.real(transformed), tf.math.imag(transformed)

    return operation


TRANSFORMS = {
    "fft": (ops.fft, np.fft.fft),
    "fft2": (ops.fft2, np.fft.fft2),
    "ifft2": (ops.ifft2, np.fft.ifft2),  # which Keras computes forwards
    "tf.ifft": (of_tensorflow(tf.signal.ifft), np.fft.ifft),
    "tf.ifft2d": (of_tensorflow(tf.signal.ifft2d), np.fft.ifft2),
}


@pytest.mark.parametrize(("operation", "expected"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_complex_transforms(operation, expected, tmp_path):
    parts = [keras.Input((None, 16), name=part) for part in "ab"]
    model = traced(keras.Model(parts, Of(operation)(parts)), tmp_path).model
    for length in (1, 5, 8, 300):
        a, b = drawn(2, length, 16), drawn(2, length, 16)[::-1]
        assert_parts(run(model, a=a, b=b), expected(a + 1j * b))


def test_features_that_are_no_power_of_two(tmp_path):
    x = keras.Input((None, 12), name="x")
    model = traced(keras.Model(x, Of(lambda x: ops.fft2((x, ops.zeros_like(x))))(x)), tmp_path).model
    assert_parts(run(model, x=drawn(3, 7, 12)), np.fft.fft2(drawn(3, 7, 12)))


@pytest.mark.parametrize("length", [16, 10, 40, None], ids=str)
@pytest.mark.parametrize("size", [12, None], ids=["known", "unknown"])
def test_real_transforms(length, size, tmp_path):
    x = keras.Input((3, size), name="x")
    model = traced(keras.Model(x, Of(lambda x: ops.rfft(x, length))(x)), tmp_path).model
    for samples in (12,) if size else (1, 12, 33):
        x = drawn(2, 3, samples)
        assert_parts(run(model, x=x), np.fft.rfft(x, length))


REAL_NUMBERS = {
    "rfft": (ops.rfft, 1),
    "fft": (lambda x: ops.fft((x, ops.zeros_like(x))), 1),
    "fft2": (lambda x: ops.fft2((x, ops.zeros_like(x))), 2),
    "tf.ifft": (lambda x: of_tensorflow(tf.signal.ifft)((x, ops.zeros_like(x))), 1),
}


@pytest.mark.parametrize("size", [16, 12])
@pytest.mark.parametrize(("operation", "axes"), REAL_NUMBERS.values(), ids=REAL_NUMBERS)
def test_the_first_and_the_middle_of_real_numbers_are_real(operation, axes, size, tmp_path):
    """What else stands there has nothing beside it that it would be small against: no limit allows it."""
    x = keras.Input((size, size), name="x")
    imaginary = run(traced(keras.Model(x, Of(operation)(x)), tmp_path).model, x=drawn(3, size, size))["imag"]
    ends = [0, size // 2]
    places = imaginary[:, ends][:, :, ends] if axes == 2 else imaginary[..., ends]
    np.testing.assert_array_equal(places, np.zeros_like(places))
    assert np.abs(imaginary[..., 1]).min() > 1e-3 / size


@pytest.mark.parametrize("center", [True, False], ids=["centred", "not centred"])
@pytest.mark.parametrize(("length", "window"), [(16, "hann"), (12, "hamming"), (9, None)], ids=str)
def test_short_time_transforms(length, window, center, tmp_path):
    x = keras.Input((None,), name="x")
    keras_model = keras.Model(x, Of(lambda x: ops.stft(x, 9, 4, length, window=window, center=center))(x))
    model = traced(keras_model, tmp_path).model
    for samples in (length, 23, 133):
        x = drawn(2, samples)
        expected = keras_model(x)
        assert_parts(run(model, x=x), expected["real"].numpy() + 1j * expected["imag"].numpy())


def test_transforms_export_and_match_number_by_number(tmp_path):
    sound, row = keras.Input((None,), name="sound"), keras.Input((16,), name="row")
    transforms = {
        "stft": ops.stft(sound, 9, 4, 16),
        "odd_stft": ops.stft(sound, 9, 4, 12),
        "rfft": ops.rfft(row, 12),
        "fft": ops.fft((row, ops.zeros_like(row))),
    }
    outputs = {f"{name}_{part}": pair[i] for name, pair in transforms.items() for i, part in enumerate("ab")}
    bundle = export_model(keras.Model([sound, row], outputs), tmp_path / "bundle")
    assert bundle.report.passed
    assert bundle.report.warnings == ()


def test_the_magnitude_of_a_spectrum(tmp_path):
    class Magnitude(layers.Layer):
        def call(self, x):
            return tf.abs(tf.signal.rfft(x))

    x = keras.Input((None,), name="x")
    model = traced(keras.Model(x, {"out": Magnitude()(x)}), tmp_path).model
    expected = np.abs(np.fft.rfft(drawn(2, 30)))
    np.testing.assert_allclose(run(model, x=drawn(2, 30))["out"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("between", [tf.math.conj, lambda z: z * z, lambda z: tf.reverse(z, [-1])])
def test_another_op_on_complex_numbers_is_refused(between, tmp_path):
    class Between(layers.Layer):
        def call(self, x):
            return tf.math.imag(between(tf.signal.fft(tf.complex(x, x))))

    x = keras.Input((8,), name="x")
    with pytest.raises(UnsupportedModelError, match=r"Op `(FFT|Conj)` of layer `between` has no mapping"):
        traced(keras.Model(x, {"out": Between(name="between")(x)}), tmp_path, ["between"])


def test_complex_numbers_of_another_maker_are_refused(tmp_path):
    class Cast(layers.Layer):
        def call(self, x):
            return tf.math.real(tf.signal.fft(tf.cast(x, "complex64")))

    x = keras.Input((8,), name="x")
    with pytest.raises(UnsupportedModelError, match="of layer `cast` has no mapping"):
        traced(keras.Model(x, {"out": Cast(name="cast")(x)}), tmp_path, ["cast"])
