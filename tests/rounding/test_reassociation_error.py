"""Reassociation errors: limits are widened if equal rounding errors cancel, and hardly at all in other models."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden_case_helpers import build_sequence_input, generate_cases
from keras import layers, ops

from keras_attn_export._format.names import Case
from keras_attn_export._rounding.reassociation_error import widen_for_reassociation
from keras_attn_export._rounding.rounding_error import measure_limits
from keras_attn_export._signature.signature import build_signature


def measure_widening(model):
    """Return the largest factor by which the limits of the output are widened, over all cases."""
    signature = build_signature(model)
    cases = measure_limits(signature, generate_cases(model).cases, "float32")
    (name,) = signature.outputs
    pairs = zip(cases, widen_for_reassociation(signature, cases, {case.name for case in cases}), strict=True)
    return max(float(np.max(widened.rounding_limits[name] / case.rounding_limits[name])) for case, widened in pairs)


@pytest.mark.slow
def test_normalization_over_one_feature_widens_limits_of_the_named_cases_alone():
    x = build_sequence_input(num_features=1)
    model = keras.Model(x, layers.LayerNormalization(epsilon=1e-6, beta_initializer="ones")(x))
    assert measure_widening(model) > 3
    signature, array = build_signature(model), np.ones((2, 3, 1), "float32")
    cases = [Case(name, {"x": array}, signature.run({"x": array})) for name in ("first", "second")]
    first_case, second_case = widen_for_reassociation(signature, cases, {"first"})
    assert first_case.rounding_limits
    assert second_case is cases[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda x: layers.Dense(3)(layers.Dense(7, activation="tanh")(x)),
        lambda x: layers.LayerNormalization()(layers.Dense(7)(x)),
        lambda x: layers.GRU(3)(x),
        lambda x: layers.MultiHeadAttention(2, 3)(x, x),
    ],
    ids=["dense", "normalization", "gru", "attention"],
)
def test_limits_of_other_layers_grow_by_less_than_2(build):
    keras.utils.set_random_seed(0)
    x = build_sequence_input(num_features=6)
    assert measure_widening(keras.Model(x, build(x))) < 2


class TracedGate(layers.Layer):
    @tf.function
    def call(self, x):
        return ops.glu(x - 300)


def compute_softmax_of_products(x):
    scores = x * np.float32(0.1)
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def compute_softplus_difference(x):
    return np.logaddexp(np.float32(0), x / 10) - np.maximum(x / 10, 0)


def compute_glu_with_sigmoid_floor(x):
    x, gates = np.split(x.astype(float) - 300, 2, axis=-1)
    return x * np.maximum(1 / (1 + np.exp(-gates)), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "compute", "shape"),
    [
        (lambda x: ops.mean(x / 10, (1, 2)), lambda x: (x / 10).mean((1, 2), "float64"), (40, 40, 3)),
        (lambda x: ops.softmax(x / 10), compute_softmax_of_products, (24,)),
        (lambda x: ops.softplus(x / 10) - ops.relu(x / 10), compute_softplus_difference, (2,)),
        (lambda x: ops.glu(x - 300), compute_glu_with_sigmoid_floor, (2,)),
        (lambda x: TracedGate()(x), compute_glu_with_sigmoid_floor, (2,)),
    ],
    ids=[
        "sum in another order",
        "product with the reciprocal",
        "difference of equal numbers",
        "sigmoid of at least 1e-8",
        "sigmoid in a tf.function",
    ],
)
def test_equivalent_computations_are_within_limits(build, compute, shape):
    """The inputs are integers, which perturbed runs leave unchanged."""
    x = keras.Input(shape, name="x")
    signature = build_signature(keras.Model(x, build(x)))
    arrays = np.random.default_rng(0).integers(0, 256, (40, 8, *shape)).astype("float32")
    cases = [Case("", {"x": array}, signature.run({"x": array})) for array in arrays]
    cases = measure_limits(signature, cases, "float32")
    for case in widen_for_reassociation(signature, cases, {""}):
        ((name, expected),) = case.outputs.items()
        assert np.all(np.abs(compute(case.inputs["x"]) - expected) <= case.rounding_limits[name])
