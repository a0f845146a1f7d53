"""The exact GELU is written as onnxruntime knows it, and gives what Keras gives, at its ends too."""

from collections import Counter

import keras
import numpy as np
import pytest
from keras import activations, layers, ops
from traced_models import optimized, run, traced

from keras_attn_export._graphs.external_data import with_weights

ROOT = np.float32(np.sqrt(0.5))
ENDS = [0, -0.0, 1e-20, 1e-40, 1, 3, 5.3, 5.5, 6, 8, 13, 1e20, 3e38, np.inf, np.nan]
ENDS = np.float32([*ENDS, *(-end for end in ENDS)])


def model_of(outputs, folder, shape=()):
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": outputs(x)})
    model.set_weights([np.random.default_rng(0).normal(size=each.shape) for each in model.get_weights()])
    found = traced(model, folder)
    return model, with_weights(found.model, found.weights)


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
    assert optimized(written, tmp_path) == expected
    x = np.random.default_rng(1).normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(run(written, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)


def test_gelu_equals_keras_at_extreme_values(tmp_path):
    model, written = model_of(lambda x: activations.gelu(x), tmp_path)
    assert optimized(written, tmp_path) == {"Gelu": 1}
    found, expected = run(written, x=ENDS)["out"], model(ENDS)["out"]
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
    np.testing.assert_allclose(run(written, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)


def test_erfc_of_gelu_is_rewritten_with_the_factor_first(tmp_path):
    model, written = model_of(lambda x: ops.erfc(ops.multiply(ROOT, -x)), tmp_path)
    assert operators(written) == {"Div": 1, "Erf": 1, "Add": 1}
    x = np.linspace(-6, 6, 101, dtype="float32")
    np.testing.assert_allclose(run(written, x=x)["out"], model(x)["out"], rtol=2e-6, atol=2e-6)
