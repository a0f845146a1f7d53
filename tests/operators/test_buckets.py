"""Where numbers fall among sorted ones, in ONNX against TensorFlow: at the boundaries, beside them, and beyond."""

import keras
import numpy as np
import pytest
from keras import ops
from traced_models import onnx_outputs

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
