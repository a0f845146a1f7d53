"""Elementwise operators in ONNX: GELU, ReLU, log1p, expm1 and bucket search, also at extreme values."""

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import activations, layers, ops
from traced_models import count_optimized_operators, run_model, run_traced_model, trace_model

from keras_attn_export._onnx.external_data import add_weights

SQRT_HALF = np.float32(np.sqrt(0.5))
MAGNITUDES = [0.0, 1e-20, 1e-40, 1, 3, 5.3, 5.5, 6, 8, 13, 1e20, 3e38, np.inf, np.nan]
EXTREME_VALUES = np.float32([*MAGNITUDES, *(-magnitude for magnitude in MAGNITUDES)])


def build_models(function, folder, shape=()):
    """Return a Keras model of a function, with random weights, and its ONNX model."""
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": function(x)})
    model.set_weights([np.random.default_rng(0).normal(size=weight.shape) for weight in model.get_weights()])
    traced = trace_model(model, folder)
    return model, add_weights(traced.model, traced.weights)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (layers.Dense(4, use_bias=False, activation="gelu"), {"MatMul": 1, "Gelu": 1}),
        (layers.Dense(4, activation="gelu"), {"MatMul": 1, "BiasGelu": 1}),
    ],
    ids=["without a bias", "with a bias"],
)
def test_gelu_is_one_operator_of_onnxruntime(layer, expected, tmp_path):
    model, onnx_model = build_models(layer, tmp_path, (None, 6))
    assert count_optimized_operators(onnx_model, tmp_path) == expected
    x = np.random.default_rng(1).normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(run_model(onnx_model, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)


def test_gelu_equals_keras_at_extreme_values(tmp_path):
    model, onnx_model = build_models(lambda x: activations.gelu(x), tmp_path)
    assert count_optimized_operators(onnx_model, tmp_path) == {"Gelu": 1}
    output, expected = run_model(onnx_model, x=EXTREME_VALUES)["out"], model(EXTREME_VALUES)["out"]
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=2e-7)
    negative = EXTREME_VALUES < 0
    np.testing.assert_array_equal(np.signbit(output[negative]), np.signbit(expected)[negative])


ERFC_WITHOUT_GELU = {
    "of the number itself": lambda x: ops.erfc(x),
    "of a product": lambda x: ops.erfc(ops.sin(x) * SQRT_HALF),
    "of the negative times another factor": lambda x: ops.erfc(-x * np.float32(0.7)),
}


@pytest.mark.parametrize("function", ERFC_WITHOUT_GELU.values(), ids=ERFC_WITHOUT_GELU)
def test_erfc_outside_gelu_is_not_rewritten(function, tmp_path):
    model, onnx_model = build_models(function, tmp_path)
    counts = Counter(node.op_type for node in onnx_model.graph.node)
    assert counts["Div"] == counts["CastLike"] == 0
    x = np.linspace(-6, 6, 101, dtype="float32")
    np.testing.assert_allclose(run_model(onnx_model, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)


MAX_ERROR_ULPS = 8  # 1e-6 in float32


def generate_magnitudes(dtype, largest):
    """Return numbers of both signs, spaced evenly in their logarithm from the smallest normal number up."""
    smallest = float(np.finfo(dtype).smallest_normal)
    sizes = np.geomspace(smallest, float(largest), 100_001)[1:-1].astype(dtype)
    return np.concatenate([-sizes, sizes])


def generate_arguments(operation, dtype):
    """Return numbers in the domain of an operation whose result is finite."""
    if operation == "expm1":
        return generate_magnitudes(dtype, np.log(np.finfo(dtype).max))
    numbers = generate_magnitudes(dtype, np.finfo(dtype).max / 2)
    near_minus_one = -1 + np.geomspace(float(np.finfo(dtype).epsneg), 0.5, 10_001).astype(dtype)
    return np.concatenate([numbers[numbers > -1], near_minus_one])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("operation", ["log1p", "expm1"])
def test_log1p_and_expm1_are_accurate_at_all_magnitudes(operation, dtype, tmp_path):
    x = keras.Input((), dtype=dtype.__name__, name="x")
    layer = layers.Lambda(getattr(tf.math, operation), dtype=dtype.__name__)
    model = trace_model(keras.Model(x, {"out": layer(x)}), tmp_path).model
    x = generate_arguments(operation, dtype)
    expected = getattr(np, operation)(x.astype(np.longdouble))
    actual = run_model(model, x=x)["out"]
    assert actual.dtype == dtype
    assert np.abs(actual / expected - 1).max() <= MAX_ERROR_ULPS * np.finfo(dtype).eps
    largest, smallest = np.finfo(dtype).max, np.finfo(dtype).smallest_normal
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1, -2, largest, -largest, smallest, -smallest], dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, operation)(x)
    actual = run_model(model, x=x)["out"]
    np.testing.assert_allclose(actual, expected, rtol=MAX_ERROR_ULPS * np.finfo(dtype).eps, atol=0)
    np.testing.assert_array_equal(np.signbit(actual[:2]), [False, True])


BOUNDARIES = [-1.5, 0.0, 0.1, 0.1, 2.0, 16777220.0]  # a duplicate; 16777219 rounds to the last in float32


def generate_neighbours(boundaries, dtype):
    """Return each boundary, its neighbours in this dtype, and numbers beyond all boundaries."""
    if np.issubdtype(dtype, np.integer):
        neighbours = np.trunc(np.array(boundaries)).astype(dtype)[:, None] + np.array([-1, 0, 1], dtype)
        return np.append(neighbours, dtype(np.iinfo(dtype).max))
    exact = np.array(boundaries, np.float32).astype(dtype)
    extremes = np.array([np.inf, -np.inf, np.nan, -0.0, *boundaries], dtype)
    step = np.maximum(np.spacing(np.abs(exact)), np.finfo(dtype).tiny)  # TensorFlow flushes subnormal numbers to zero
    return np.concatenate([exact, exact + step, exact - step, extremes])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_digitize_equals_keras_at_boundaries(dtype, tmp_path):
    x = keras.Input((None,), dtype=dtype.__name__, name="x")
    model = keras.Model(x, {"out": ops.digitize(x, np.array(BOUNDARIES))})
    numbers = generate_neighbours(BOUNDARIES, dtype)[None]
    expected, actual = model(numbers)["out"].numpy(), run_traced_model(model, {"x": numbers}, tmp_path)["out"]
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
    assert {*actual.flat} >= {0, 1, 2, 4, 5, 6}


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64"])
def test_relu_of_integers_equals_keras(dtype, tmp_path):
    x = keras.Input((None,), dtype=dtype, name="x")
    limits = np.iinfo(dtype)
    numbers = np.array([[limits.min, limits.max, 0, limits.max - 1]], dtype)
    actual = run_traced_model(keras.Model(x, {"out": ops.relu(x)}), {"x": numbers}, tmp_path)["out"]
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, np.maximum(numbers, 0))


@pytest.mark.parametrize(("side", "size", "dtype"), [("left", 6, "int32"), ("right", None, "int64")])
def test_searchsorted_equals_keras_at_boundaries(side, size, dtype, tmp_path):
    """Keras returns int64 indices if the length of the sorted sequence is unknown."""
    edges, x = keras.Input(batch_shape=(size,), name="edges"), keras.Input(batch_shape=(None,), name="x")
    model = keras.Model([edges, x], {"out": ops.searchsorted(edges, x, side)})
    inputs = {"edges": np.array(BOUNDARIES, np.float32), "x": generate_neighbours(BOUNDARIES, np.float32)}
    actual = run_traced_model(model, inputs, tmp_path)["out"]
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, model(inputs)["out"])
