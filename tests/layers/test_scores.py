"""Scores against numbers worked out by hand and against plain loops."""

import keras
import numpy as np
from backends import only_on
from keras import ops
from tolerances import assert_close

from keras_attn._scores import additive_scores, dot_product_scores


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_additive_score_of_one_pair_by_hand():
    queries, keys = np.float32([[[0.5, -1.0]]]), np.float32([[[0.5, 2.0]]])
    scores = additive_scores(queries, keys, lambda features: ops.matmul(features, np.float32([[2.0], [3.0]])))
    # 2 tanh(1) + 3 tanh(1) = 5 * 0.761594
    assert_close(ops.convert_to_numpy(scores), np.float32([[[3.807971]]]))


def test_additive_scores_pair_each_query_with_each_key():
    queries, keys, w_v = normal(2, 1, 3, 6), normal(2, 1, 4, 6), normal(6)
    scores = additive_scores(queries, keys, lambda features: ops.matmul(features, w_v[:, None]))
    expected = np.zeros((2, 1, 3, 4), "float32")
    for b, i, j in np.ndindex(2, 3, 4):
        expected[b, 0, i, j] = w_v @ np.tanh(queries[b, 0, i] + keys[b, 0, j])
    assert_close(ops.convert_to_numpy(scores), expected)


def test_what_weighs_features_gets_two_axes():
    """TensorFlow's product of four axes by two goes wrong where one of them is 1: Keras before 3.15 would meet it."""
    seen = []

    def weigh(features):
        seen.append(len(features.shape))
        return ops.matmul(features, normal(6, 1))

    for shape in ((2, 3, 4), (1, 1, 1), (2, 0, 4), (2, 3, 0)):
        batch, num_queries, num_keys = shape
        queries, keys = normal(batch, 1, num_queries, 6), normal(batch, 1, num_keys, 6)
        assert additive_scores(queries, keys, weigh).shape == (batch, 1, num_queries, num_keys)
    assert seen == [2] * 4


@only_on("torch", reason="there alone products lose digits")
def test_products_of_float64_are_what_the_documentation_says():
    """Should Keras have mended it, docs/concepts.md is to be mended as well."""
    vectors = ops.cast(normal(3, 3), "float64")
    assert keras.backend.standardize_dtype(ops.matmul(vectors, vectors).dtype) == "float32"


def test_dot_products_pair_each_query_with_each_key():
    queries, keys = normal(2, 3, 5), normal(2, 4, 5)
    expected = np.float32(0.3) * np.einsum("bid,bjd->bij", queries, keys)
    assert_close(ops.convert_to_numpy(dot_product_scores(queries, keys, 0.3)), expected)


def test_float16_dot_products_that_fit_after_scaling_do_not_overflow_before_it():
    vector = np.full((1, 1, 64), 60, "float16")  # 60 * 60 * 64 = 230400 is past 65504, an eighth of it is not
    scores = dot_product_scores(ops.convert_to_tensor(vector), ops.convert_to_tensor(vector), 64**-0.5)
    assert_close(ops.convert_to_numpy(scores), np.float16([[[28800]]]))
