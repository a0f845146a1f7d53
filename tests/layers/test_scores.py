"""Scores and normalizers beyond the contract: examples by hand, extreme numbers, masked scores."""

import numpy as np
import pytest
import reference
from backends import compute_gradients
from keras import ops
from layer_contract import draw_normal, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import BilinearAttention, CosineAttention
from keras_attn._maths.normalizers import NORMALIZERS
from keras_attn._maths.scores import additive_scores, dot_product_scores

every_normalizer = pytest.mark.parametrize("name", NORMALIZERS)
MASK = np.array([[True, True, False, True], [False, False, False, False], [False, True, False, False]])


def weights_of(name, scores, mask=None, dtype="float32"):
    tensor = ops.cast(ops.convert_to_tensor(scores), dtype)
    return to_numpy(
        ops.cast(NORMALIZERS[name](tensor, None if mask is None else ops.convert_to_tensor(mask)), "float32")
    )


def expected(name, scores, mask):
    result = np.zeros(scores.shape)
    for row, keep, weights in zip(scores, mask, result, strict=True):
        weights[keep] = reference.NORMALIZERS[name](list(map(float, row[keep])))
    return result


def test_sparsemax_equals_an_example_by_hand():
    # 0.6 and 0.5 share the weight; their mean of 0.55 stands for a half each; 0.05 is below the threshold of 0.05
    assert_close(weights_of("sparsemax", [[0.6, 0.5, 0.05, -3.0]]), np.array([[0.55, 0.45, 0.0, 0.0]]), "float32")
    assert_close(weights_of("sparsemax", [[2.0, 0.9]]), np.array([[1.0, 0.0]]), "float32")
    assert_close(weights_of("sparsemax", [[1.0, 1.0, 1.0]]), np.full((1, 3), 1 / 3), "float32")


@every_normalizer
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_normalizer_agrees_with_the_oracle(name, scale):
    rng = np.random.default_rng(3)
    scores, mask = (scale * rng.normal(size=(50, 9))).astype("float32"), rng.random((50, 9)) < 0.6
    # at scale s a score is rounded by s 6e-8, and so is a weight that is a difference of scores
    tolerance = max(2e-6, scale * 5e-7) if name == "sparsemax" else 2e-6
    np.testing.assert_allclose(weights_of(name, scores, mask), expected(name, scores, mask), atol=tolerance, rtol=0)
    everything = np.ones_like(mask)
    np.testing.assert_allclose(weights_of(name, scores), expected(name, scores, everything), atol=tolerance, rtol=0)


@every_normalizer
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_poison_in_masked_scores_changes_no_weight(name, garbage):
    scores = np.random.default_rng(0).normal(size=MASK.shape).astype("float32")
    dirty = np.where(MASK, scores, np.float32(garbage))
    weights = weights_of(name, dirty, MASK)
    assert_identical(weights, weights_of(name, scores, MASK))
    assert np.all(weights[~MASK] == 0)
    assert np.all(weights[MASK] >= 0)
    assert np.all(weights[1] == 0)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_computes_in_float32(name, dtype):
    """512 keys alike: a sum in bfloat16 stops growing at 256, and in float16 1/512 loses digits."""
    weights = weights_of(name, np.zeros((1, 512)), dtype=dtype)
    assert_identical(weights, np.full((1, 512), 1 / 512, "float32"))


def inputs():
    return [draw_normal(2, length, 4, seed=seed) for seed, length in enumerate((3, 5, 5))]


def test_weighing_of_features_gets_two_axes():
    """TensorFlow's product of four axes by two goes wrong where one of them is 1: Keras before 3.15 would meet it."""
    seen = []

    def weigh(features):
        seen.append(len(features.shape))
        return ops.matmul(features, draw_normal(6, 1))

    for shape in ((2, 3, 4), (1, 1, 1), (2, 0, 4), (2, 3, 0)):
        batch, num_queries, num_keys = shape
        queries, keys = draw_normal(batch, 1, num_queries, 6), draw_normal(batch, 1, num_keys, 6)
        assert additive_scores(queries, keys, weigh).shape == (batch, 1, num_queries, num_keys)
    assert seen == [2] * 4


def test_float16_dot_products_do_not_overflow_before_scaling():
    vector = np.full((1, 1, 64), 60, "float16")  # 60 * 60 * 64 = 230400 is past 65504, an eighth of it is not
    scores = dot_product_scores(ops.convert_to_tensor(vector), ops.convert_to_tensor(vector), 64**-0.5)
    assert_close(to_numpy(scores), np.float16([[[28800]]]))


def test_bilinear_scores_start_with_the_documented_variance():
    Dq, Dk = 40, 60
    layer = BilinearAttention(kernel_initializer="glorot_uniform")
    queries, keys = draw_normal(1, 300, Dq, seed=1), draw_normal(1, 300, Dk, seed=2)
    layer.build(queries.shape, keys.shape, keys.shape)
    variance = float(np.var(to_numpy(layer.score(queries, keys))))
    assert abs(variance / (2 * Dq * Dk / (Dq + Dk)) - 1) < 0.1


@pytest.mark.parametrize("factor", [1e-4, 1e25])
def test_cosine_ignores_the_length_of_vectors(factor):
    queries, keys, values = inputs()
    layer = CosineAttention(0.3)
    scaled = layer(queries * np.float32(factor), keys / np.float32(factor), values)
    assert_close(to_numpy(scaled), to_numpy(layer(queries, keys, values)), tolerance=1e-5)


def test_cosine_of_zeros_is_zero_with_finite_gradients():
    queries, keys, values = inputs()
    queries[0, 1], keys[1, 2] = 0.0, 0.0
    layer = CosineAttention(0.5)
    layer.build(queries.shape, keys.shape, values.shape)
    scores = to_numpy(layer.score(queries, keys))
    assert np.all(scores[0, 1] == 0)
    assert np.all(scores[1, :, 2] == 0)
    program = compute_gradients(lambda *x: ops.sum(layer(*x) ** 2), 3, layer.trainable_variables)
    assert all(np.isfinite(to_numpy(gradient)).all() for gradient in program(*map(ops.convert_to_tensor, inputs())))
    dirty = program(*map(ops.convert_to_tensor, (queries, keys, values)))
    assert all(np.isfinite(to_numpy(gradient)).all() for gradient in dirty)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_cosine_of_large_vectors_is_finite_in_half_precision(policy):
    queries, keys, values = (300.0 * array for array in inputs())
    (_, half), (_, full) = (
        CosineAttention(dtype=dtype)(queries, keys, values, return_attention_scores=True)
        for dtype in (policy, "float32")
    )
    np.testing.assert_allclose(to_numpy(ops.cast(half, "float32")), to_numpy(full), atol=2e-2)  # bfloat16 has 8 bits
