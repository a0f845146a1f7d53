"""What another order of sums may do: found where two roundings that are alike cancel, and nowhere else of size."""

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


def widened(model):
    """By how much the limits of an output are widened at most, over the cases."""
    signature = build_signature(model)
    cases = measure_limits(signature, generate_cases(model).cases, "float32")
    (name,) = signature.outputs
    pairs = zip(cases, widen_for_reassociation(signature, cases, {case.name for case in cases}), strict=True)
    return max(float(np.max(wide.rounding[name] / case.rounding[name])) for case, wide in pairs)


@pytest.mark.slow
def test_normalization_over_one_feature_widens_limits_near_them_alone():
    x = build_sequence_input(size=1)
    model = keras.Model(x, layers.LayerNormalization(epsilon=1e-6, beta_initializer="ones")(x))
    assert widened(model) > 3
    signature, array = build_signature(model), np.ones((2, 3, 1), "float32")
    given = [Case(name, {"x": array}, signature.run({"x": array})) for name in ("near", "far")]
    near, far = widen_for_reassociation(signature, given, {"near"})
    assert near.rounding
    assert far is given[1]


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
def test_limits_of_other_layers_stay(build):
    keras.utils.set_random_seed(0)
    x = build_sequence_input(size=6)
    assert widened(keras.Model(x, build(x))) < 2


class GatedInFunction(layers.Layer):
    @tf.function
    def call(self, x):
        return ops.glu(x - 300)


def with_tenths(x):
    powers = np.exp((tenths := x * np.float32(0.1)) - tenths.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def with_another_softplus(x):
    return np.logaddexp(np.float32(0), x / 10) - np.maximum(x / 10, 0)


def with_an_open_gate(x):
    x, gates = np.split(x.astype(float) - 300, 2, axis=-1)
    return x * np.maximum(1 / (1 + np.exp(-gates)), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "other", "shape"),
    [
        (lambda x: ops.mean(x / 10, (1, 2)), lambda x: (x / 10).mean((1, 2), "float64"), (40, 40, 3)),
        (lambda x: ops.softmax(x / 10), with_tenths, (24,)),
        (lambda x: ops.softplus(x / 10) - ops.relu(x / 10), with_another_softplus, (2,)),
        (lambda x: ops.glu(x - 300), with_an_open_gate, (2,)),
        (lambda x: GatedInFunction()(x), with_an_open_gate, (2,)),
    ],
    ids=[
        "sum in another order",
        "product with the reciprocal",
        "difference of equal numbers",
        "sigmoid that ends at 1e-8",
        "within a tf.function",
    ],
)
def test_equivalent_computations_are_within_limits(build, other, shape):
    """Of whole numbers, which stay while rounding is measured."""
    x = keras.Input(shape, name="x")
    signature = build_signature(keras.Model(x, build(x)))
    drawn = np.random.default_rng(0).integers(0, 256, (40, 8, *shape)).astype("float32")
    cases = measure_limits(signature, [Case("", {"x": each}, signature.run({"x": each})) for each in drawn], "float32")
    for case in widen_for_reassociation(signature, cases, {""}):
        ((name, expected),) = case.outputs.items()
        apart = np.abs(other(case.inputs["x"]) - expected)
        assert np.all(apart <= case.rounding[name])
