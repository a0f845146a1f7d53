"""Exports change no variable of the model, and the file equals `predict` before the export."""

import keras
import numpy as np
import pytest
from keras import layers
from shifted_models import build_shifted_model
from unchanged_variables_check import assert_variables_unchanged

import keras_attn
from keras_attn_export import ParityError, UnsupportedModelError, export_model, verify_bundle
from keras_attn_export._signature.unchanged_variables import restore_variables


def build_convolutional_model(first_layer):
    """Return a model with random statistics after layer `first_layer`."""
    x = keras.Input((8, 8, 3), name="x")
    normalized = layers.BatchNormalization(name="statistics")(layers.Conv2D(4, 3)(first_layer(x)))
    model = keras.Model(x, layers.Dense(2)(layers.Flatten()(normalized)))
    rng = np.random.default_rng(0)
    for weight in model.get_layer("statistics").weights:
        weight.assign(rng.random(weight.shape) + 0.5)
    return model


@pytest.mark.slow
def test_statistics_after_augmentation_stay_unchanged(tmp_path):
    """Augmentation layers put a call without `training` in training mode."""
    augmentation = keras.Sequential([layers.RandomZoom(0.1), layers.RandomContrast(0.1)])
    model, images = build_convolutional_model(augmentation), np.random.default_rng(1).random((3, 8, 8, 3), "float32")
    predicted = model.predict(images, verbose=0)
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle")
    (output,) = bundle.run(images).values()
    np.testing.assert_allclose(output, predicted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_verification_of_a_mixed_float16_model_changes_no_variable(tmp_path):
    keras.config.set_dtype_policy("mixed_float16")
    model = build_convolutional_model(layers.CenterCrop(6, 6))
    keras.config.set_dtype_policy("float32")
    images = np.random.default_rng(1).random((3, 8, 8, 3), "float32")
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle")
        assert verify_bundle(bundle.path, samples={"x": images}, model=model).passed


@pytest.mark.slow
def test_failed_export_changes_no_seed_or_statistics(tmp_path):
    x = keras.Input((3, 6), name="x")
    hidden = layers.LSTM(4, dropout=0.2, return_sequences=True)(x)
    model = keras.Model(x, build_shifted_model("dense", 1.0)(layers.Dense(6)(layers.BatchNormalization()(hidden))))
    with assert_variables_unchanged(model), pytest.raises(ParityError):
        export_model(model, tmp_path / "bundle")


def test_cells_with_dropout_before_attention_are_exported(tmp_path):
    x = keras.Input((4, 3), name="x")
    cells = [layers.SimpleRNNCell(4, dropout=0.2), layers.LSTMCell(4)]
    hidden = layers.RNN(cells, return_sequences=True)(x)
    model = keras.Model(x, layers.Dense(2)(keras_attn.AdditiveAttention(4)(*[hidden] * 3)))
    series = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    predicted = model(series, training=False)  # advances the seeds
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle")
    (output,) = bundle.run(series).values()
    np.testing.assert_allclose(output, predicted, rtol=1e-4, atol=1e-5)


class CallCounter(layers.Layer):
    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


def test_layer_that_assigns_a_weight_in_inference_is_refused(tmp_path):
    x = keras.Input((6,), name="x")
    model = keras.Model(x, layers.Dense(2)(CallCounter(name="counting")(x)))
    message = r"^Layer `counting` changes a variable, `calls`, when .* `if training:`, do not"
    with assert_variables_unchanged(model), pytest.raises(UnsupportedModelError, match=message):
        export_model(model, tmp_path / "bundle")


def test_changed_weight_is_restored_and_raises():
    sublayers = [keras.Input((2,)), layers.Dense(1, name="dense"), layers.Dropout(0.5, seed=0)]
    model = keras.Sequential(sublayers, name="sequential")
    expected_error = pytest.raises(UnsupportedModelError, match="Weight `sequential/dense")
    with assert_variables_unchanged(model), expected_error, restore_variables(model):
        model.layers[0].kernel.assign([[1.0], [2.0]])
    with assert_variables_unchanged(model), restore_variables(model):
        model(np.ones((1, 2)), training=True)  # dropout advances the seed
