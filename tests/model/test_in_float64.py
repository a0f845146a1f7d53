"""What a model would give without its rounding, and what that allows."""

import keras
import numpy as np
import pytest
from export_models import shared_with_nested_model
from keras import layers, ops
from test_rounding import numbers

from keras_attn_export._model.in_float64 import outputs_in_float64
from keras_attn_export._model.reference import reference_of
from keras_attn_export._model.rounding import with_rounding
from keras_attn_export._model.signature import model_signature
from keras_attn_export._options import Options
from keras_attn_export._standalone.verify import Case


def case_of(model, x):
    return Case("base", {"x": x}, model_signature(model).run({"x": x}))


def limits(model):
    base = reference_of(model, Options(), lambda _: None)[1].golden.cases[0]
    return base.rounding["out"], base.outputs["out"]


def test_a_dense_layer_in_float64():
    x = keras.Input((6,), name="x")
    model = keras.Model(x, {"out": layers.Dense(4, bias_initializer="normal")(x)})
    case = case_of(model, numbers(5, 6))
    (found,) = outputs_in_float64(model_signature(model), [case])
    kernel, bias = (np.asarray(weight, "float64") for weight in model.get_weights())
    np.testing.assert_allclose(found["out"], case.inputs["x"].astype("float64") @ kernel + bias, rtol=1e-14, atol=1e-14)


def test_layer_shared_with_a_nested_model_has_its_weights_in_float64():
    case = case_of(shared_with_nested_model(), numbers(2, 3, 6))
    (found,) = outputs_in_float64(model_signature(shared_with_nested_model()), [case])
    np.testing.assert_allclose(found["out"], case.outputs["out"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["x", None])
def test_constants_that_cancel_have_the_rounding_between_them(name):
    x = keras.Input((6,), name=name)
    limit, _ = limits(keras.Model(x, {"out": (x + 1e4) - 1e4}))  # in float32 a multiple of 1e-3, wherever x is moved
    assert 1e-3 < np.median(limit) < 2e-2


class Other(layers.Layer):
    """Another model in float64."""

    def call(self, inputs):
        return inputs * (2 if self.compute_dtype == "float64" else 1)


class Scaled(layers.Layer):
    """A layer whose clone lacks what was set afterwards."""

    factor = 1.0

    def call(self, inputs):
        return inputs * (1 + self.factor)


@pytest.mark.parametrize("layer", [Other, Scaled])
def test_a_clone_that_is_another_model_allows_nothing(layer):
    made, x = layer(), keras.Input((6,), name="x")
    made.factor = 1.005
    limit, expected = limits(keras.Model(x, {"out": made(x)}))
    assert limit.max() < 1e-4 * np.abs(expected).max()


def test_integers_that_float64_chooses_otherwise_are_ties():
    x = keras.Input((4, 4, 3), dtype="uint8", name="x")
    halves = ops.cast(x, "float32") / 3.0 * 1.5 * 3.0
    model = keras.Model(x, {"out": ops.cast(ops.floor(layers.Rescaling(1.0)(halves) / 1.5), "int32")})
    case = case_of(model, np.random.default_rng(0).integers(0, 255, (9, 4, 4, 3)).astype("uint8"))
    (right,) = outputs_in_float64(model_signature(model), [case])
    (found,) = with_rounding(model_signature(model), [case], "float32", [right])
    assert np.all(found.rounding["out"][right["out"] != case.outputs["out"]])
