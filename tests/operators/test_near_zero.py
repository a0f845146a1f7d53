"""log1p and expm1 in ONNX against NumPy's, over all magnitudes, and with all that onnxruntime does to a graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from traced_models import run, traced

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
    model = traced(keras.Model(x, {"out": layer(x)}), tmp_path).model
    x = sweep(operation, dtype)
    expected = getattr(np, operation)(x.astype(np.longdouble))
    got = run(model, x=x)["out"]
    assert got.dtype == dtype
    assert np.abs(got / expected - 1).max() <= ULPS * np.finfo(dtype).eps
    largest, smallest = np.finfo(dtype).max, np.finfo(dtype).smallest_normal
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1, -2, largest, -largest, smallest, -smallest], dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, operation)(x)
    got = run(model, x=x)["out"]
    np.testing.assert_allclose(got, expected, rtol=ULPS * np.finfo(dtype).eps, atol=0)
    np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])
