"""Scaled dot-product attention: the scale, the sizes that must agree, and half precision."""

import keras
import numpy as np
import pytest
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import DotProductAttention


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize("size", [4, 256])
def test_scores_of_standard_normal_vectors_have_unit_variance(size):
    scores = DotProductAttention().score(normal(1, 200, size), normal(1, 300, size, seed=1))
    assert abs(float(ops.var(scores)) - 1) < 0.1  # 500 vectors: three standard errors of the variance at size 4


def test_a_given_scale_takes_the_place_of_the_default():
    queries, keys, values = normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 6)
    half = DotProductAttention(scale=0.5)(queries, keys, values)
    assert_identical(ops.convert_to_numpy(half), ops.convert_to_numpy(DotProductAttention()(queries, keys, values)))
    zero = DotProductAttention(scale=0)(queries, keys, values)
    assert_close(ops.convert_to_numpy(zero)[:, 0], values.mean(1))


def test_a_size_known_only_when_it_runs():
    inputs = [keras.Input((None, None)) for _ in range(3)]
    model = keras.Model(inputs, DotProductAttention()(*inputs))
    arrays = [normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 6)]
    assert_close(model.predict(arrays, verbose=0), ops.convert_to_numpy(DotProductAttention()(*arrays)))


def test_large_float16_vectors_stay_in_range():
    queries, keys = np.full((2, 3, 64), 60.0), np.full((2, 5, 64), 60.0)
    output = DotProductAttention(dtype="float16")(queries, keys, np.ones((2, 5, 7)), np.array([0, 3]))
    expected = np.zeros((2, 3, 7), "float16")
    expected[1] = 1
    assert_close(ops.convert_to_numpy(output), expected)


def test_config_holds_every_option():
    config = DotProductAttention(0.25, scale=0.5, seed=3, name="attention").get_config()
    assert {name: config[name] for name in ("dropout", "scale", "seed", "name")} == {
        "dropout": 0.25,
        "scale": 0.5,
        "seed": 3,
        "name": "attention",
    }
    assert DotProductAttention.from_config(config).get_config() == config


def test_sizes_that_differ_are_refused_while_a_model_is_built():
    queries, keys = keras.Input((3, 4)), keras.Input((5, 6))
    with pytest.raises(ValueError, match=r"`queries` and `keys` must agree in D.*\(None, 3, 4\).*\(None, 5, 6\)"):
        DotProductAttention()(queries, keys, keys)


@pytest.mark.parametrize(
    ("scale", "error", "sentence"),
    [
        ("auto", TypeError, r"`scale` must be a number or None.*type str"),
        (True, TypeError, r"`scale` must be a number or None.*type bool"),
        (float("inf"), ValueError, r"`scale` must be finite\. Received: scale=inf"),
    ],
)
def test_bad_scales_are_refused(scale, error, sentence):
    with pytest.raises(error, match=sentence):
        DotProductAttention(scale=scale)
