"""Functions of single numbers in ONNX: GELU, log1p, expm1 and buckets, also at the ends of their range."""

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import activations, layers, ops
from traced_models import count_optimized_operators, onnx_outputs, run_model, trace_model

from keras_attn_export._onnx.external_data import add_weights

ROOT = np.float32(np.sqrt(0.5))
ENDS = [0, -0.0, 1e-20, 1e-40, 1, 3, 5.3, 5.5, 6, 8, 13, 1e20, 3e38, np.inf, np.nan]
ENDS = np.float32([*ENDS, *(-end for end in ENDS)])


def model_of(outputs, folder, shape=()):
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": outputs(x)})
    model.set_weights([np.random.default_rng(0).normal(size=each.shape) for each in model.get_weights()])
    found = trace_model(model, folder)
    return model, add_weights(found.model, found.weights)


def operators(written):
    return Counter(node.op_type for node in written.graph.node)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (layers.Dense(4, use_bias=False, activation="gelu"), {"MatMul": 1, "Gelu": 1}),
        (layers.Dense(4, activation="gelu"), {"MatMul": 1, "BiasGelu": 1}),
    ],
    ids=["without a bias", "with a bias"],
)
def test_gelu_is_one_operator_of_onnxruntime(layer, expected, tmp_path):
    model, written = model_of(layer, tmp_path, (None, 6))
    assert count_optimized_operators(written, tmp_path) == expected
    x = np.random.default_rng(1).normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(run_model(written, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)


def test_gelu_equals_keras_at_extreme_values(tmp_path):
    model, written = model_of(lambda x: activations.gelu(x), tmp_path)
    assert count_optimized_operators(written, tmp_path) == {"Gelu": 1}
    found, expected = run_model(written, x=ENDS)["out"], model(ENDS)["out"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-7)
    np.testing.assert_array_equal(np.signbit(found[ENDS < 0]), np.signbit(expected)[ENDS < 0])


OTHERS = {
    "of the number itself": lambda x: ops.erfc(x),
    "of a product": lambda x: ops.erfc(ops.sin(x) * ROOT),
    "of the negative times another factor": lambda x: ops.erfc(-x * np.float32(0.7)),
}


@pytest.mark.parametrize("outputs", OTHERS.values(), ids=OTHERS)
def test_other_erfc_are_not_rewritten(outputs, tmp_path):
    model, written = model_of(outputs, tmp_path)
    assert operators(written)["Div"] == operators(written)["CastLike"] == 0
    x = np.linspace(-6, 6, 101, dtype="float32")
    np.testing.assert_allclose(run_model(written, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)


ULPS = 8  # of the dtype: 1e-6 in float32


def magnitudes(dtype, largest):
    """Return numbers of both signs from the smallest normal one up, evenly in their logarithm."""
    smallest = np.finfo(dtype).smallest_normal
    sizes = np.geomspace(float(smallest), float(largest), 100_001, dtype=np.float64)[1:-1].astype(dtype)
    return np.concatenate([-sizes, sizes])


def sweep(operation, dtype):
    if operation == "expm1":
        return magnitudes(dtype, np.log(np.finfo(dtype).max))
    numbers = magnitudes(dtype, np.finfo(dtype).max / 2)
    near_minus_one = -1 + np.geomspace(float(np.finfo(dtype).epsneg), 0.5, 10_001).astype(dtype)
    return np.concatenate([numbers[numbers > -1], near_minus_one])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("operation", ["log1p", "expm1"])
def test_log1p_and_expm1_are_accurate_at_all_magnitudes(operation, dtype, tmp_path):
    x = keras.Input((), dtype=dtype.__name__, name="x")
    layer = layers.Lambda(getattr(tf.math, operation), dtype=dtype.__name__)
    model = trace_model(keras.Model(x, {"out": layer(x)}), tmp_path).model
    x = sweep(operation, dtype)
    expected = getattr(np, operation)(x.astype(np.longdouble))
    got = run_model(model, x=x)["out"]
    assert got.dtype == dtype
    assert np.abs(got / expected - 1).max() <= ULPS * np.finfo(dtype).eps
    largest, smallest = np.finfo(dtype).max, np.finfo(dtype).smallest_normal
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1, -2, largest, -largest, smallest, -smallest], dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, operation)(x)
    got = run_model(model, x=x)["out"]
    np.testing.assert_allclose(got, expected, rtol=ULPS * np.finfo(dtype).eps, atol=0)
    np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])


BOUNDARIES = [-1.5, 0.0, 0.1, 0.1, 2.0, 16777220.0]  # two equal; the integer before the last rounds to it in float32


def beside(boundaries, dtype):
    """Return each boundary, its neighbours in this dtype, and what lies beyond all."""
    if np.issubdtype(dtype, np.integer):
        around = np.trunc(np.array(boundaries)).astype(dtype)[:, None] + np.array([-1, 0, 1], dtype)
        return np.append(around, dtype(np.iinfo(dtype).max))
    exact = np.array(boundaries, np.float32).astype(dtype)
    ends = np.array([np.inf, -np.inf, np.nan, -0.0, *boundaries], dtype)
    step = np.maximum(np.spacing(np.abs(exact)), np.finfo(dtype).tiny)  # TensorFlow takes what is below for zero
    return np.concatenate([exact, exact + step, exact - step, ends])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_digitize_equals_keras_beside_boundaries(dtype, tmp_path):
    x = keras.Input((None,), dtype=dtype.__name__, name="x")
    model = keras.Model(x, {"out": ops.digitize(x, np.array(BOUNDARIES))})
    numbers = beside(BOUNDARIES, dtype)[None]
    expected, got = model(numbers)["out"].numpy(), onnx_outputs(model, {"x": numbers}, tmp_path)["out"]
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    assert {*got.flat} >= {0, 1, 2, 4, 5, 6}


@pytest.mark.parametrize(("side", "size", "dtype"), [("left", 6, "int32"), ("right", None, "int64")])
def test_searchsorted_equals_keras_beside_boundaries(side, size, dtype, tmp_path):
    """Keras counts in int64 along a line of unknown length."""
    line, x = keras.Input(batch_shape=(size,), name="line"), keras.Input(batch_shape=(None,), name="x")
    model = keras.Model([line, x], {"out": ops.searchsorted(line, x, side)})
    given = {"line": np.array(BOUNDARIES, np.float32), "x": beside(BOUNDARIES, np.float32)}
    got = onnx_outputs(model, given, tmp_path)["out"]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, model(given)["out"])
