"""Scores and normalizers: examples by hand, extreme numbers, masked scores and half precision."""

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


def normalize(name, scores, mask=None, dtype="float32"):
    mask = None if mask is None else ops.convert_to_tensor(mask)
    return to_numpy(ops.cast(NORMALIZERS[name](ops.cast(ops.convert_to_tensor(scores), dtype), mask), "float32"))


def compute_expected_weights(name, scores, mask):
    weights = np.zeros(scores.shape)
    for row, row_mask, row_weights in zip(scores, mask, weights, strict=True):
        row_weights[row_mask] = reference.NORMALIZERS[name](list(map(float, row[row_mask])))
    return weights


def test_sparsemax_equals_an_example_by_hand():
    # A weight is max(score - threshold, 0). The threshold of the first row is (0.6 + 0.5 - 1) / 2 = 0.05.
    assert_close(normalize("sparsemax", [[0.6, 0.5, 0.05, -3.0]]), np.array([[0.55, 0.45, 0.0, 0.0]]), "float32")
    assert_close(normalize("sparsemax", [[2.0, 0.9]]), np.array([[1.0, 0.0]]), "float32")
    assert_close(normalize("sparsemax", [[1.0, 1.0, 1.0]]), np.full((1, 3), 1 / 3), "float32")


@every_normalizer
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_normalizer_equals_the_reference(name, scale):
    rng = np.random.default_rng(3)
    scores, mask = (scale * rng.normal(size=(50, 9))).astype("float32"), rng.random((50, 9)) < 0.6
    # At scale s, rounding changes a score by up to s * 6e-8, and a sparsemax weight is a difference of scores.
    tolerance = max(2e-6, scale * 5e-7) if name == "sparsemax" else 2e-6
    expected = compute_expected_weights(name, scores, mask)
    np.testing.assert_allclose(normalize(name, scores, mask), expected, atol=tolerance, rtol=0)
    expected = compute_expected_weights(name, scores, np.ones_like(mask))
    np.testing.assert_allclose(normalize(name, scores), expected, atol=tolerance, rtol=0)


@every_normalizer
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_masked_scores_do_not_change_weights(name, poison):
    scores = np.random.default_rng(0).normal(size=MASK.shape).astype("float32")
    weights = normalize(name, np.where(MASK, scores, np.float32(poison)), MASK)
    assert_identical(weights, normalize(name, scores, MASK))
    assert np.all(weights[~MASK] == 0)
    assert np.all(weights[MASK] >= 0)
    assert np.all(weights[1] == 0)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_computes_in_float32(name, dtype):
    """512 equal keys: in bfloat16 a sum of ones stops growing at 256."""
    weights = normalize(name, np.zeros((1, 512)), dtype=dtype)
    assert_identical(weights, np.full((1, 512), 1 / 512, "float32"))


def draw_inputs():
    return [draw_normal(2, length, 4, seed=seed) for seed, length in enumerate((3, 5, 5))]


def test_features_are_projected_as_a_matrix():
    """Before Keras 3.15, TensorFlow's product of rank 4 by rank 2 is wrong for an axis of size 1."""
    ranks = []

    def apply_w_v(features):
        ranks.append(len(features.shape))
        return ops.matmul(features, draw_normal(6, 1))

    for shape in ((2, 3, 4), (1, 1, 1), (2, 0, 4), (2, 3, 0)):
        batch, num_queries, num_keys = shape
        queries, keys = draw_normal(batch, 1, num_queries, 6), draw_normal(batch, 1, num_keys, 6)
        assert additive_scores(queries, keys, apply_w_v).shape == (batch, 1, num_queries, num_keys)
    assert ranks == [2] * 4


def test_float16_dot_products_do_not_overflow_before_scaling():
    vector = np.full((1, 1, 64), 60, "float16")  # 60 * 60 * 64 = 230400 overflows at 65504; 230400 / 8 does not
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
def test_cosine_does_not_depend_on_the_length_of_vectors(factor):
    queries, keys, values = draw_inputs()
    layer = CosineAttention(0.3)
    output = layer(queries * np.float32(factor), keys / np.float32(factor), values)
    assert_close(to_numpy(output), to_numpy(layer(queries, keys, values)), tolerance=1e-5)


def test_cosine_of_zeros_is_zero_with_finite_gradients():
    queries, keys, values = draw_inputs()
    queries[0, 1], keys[1, 2] = 0.0, 0.0
    layer = CosineAttention(0.5)
    layer.build(queries.shape, keys.shape, values.shape)
    scores = to_numpy(layer.score(queries, keys))
    assert np.all(scores[0, 1] == 0)
    assert np.all(scores[1, :, 2] == 0)
    program = compute_gradients(lambda *x: ops.sum(layer(*x) ** 2), 3, layer.trainable_variables)
    for arrays in (draw_inputs(), (queries, keys, values)):
        gradients = program(*map(ops.convert_to_tensor, arrays))
        assert all(np.isfinite(to_numpy(gradient)).all() for gradient in gradients)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_cosine_of_large_vectors_is_finite_in_half_precision(policy):
    queries, keys, values = (300.0 * array for array in draw_inputs())
    (_, weights), (_, expected) = (
        CosineAttention(dtype=dtype)(queries, keys, values, return_attention_scores=True)
        for dtype in (policy, "float32")
    )
    weights = to_numpy(ops.cast(weights, "float32"))
    np.testing.assert_allclose(weights, to_numpy(expected), atol=2e-2)  # bfloat16 has 8 bits
