"""Scores beyond the contract: against numbers worked out by hand and plain loops, and what each scale promises."""

import keras
import numpy as np
import pytest
from backends import gradients_of, only_on
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close

from keras_attn import BilinearAttention, CosineAttention, DotProductAttention
from keras_attn._maths.scores import additive_scores, dot_product_scores


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def inputs():
    return [normal(2, length, 4, seed=seed) for seed, length in enumerate((3, 5, 5))]


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


def test_float16_dot_products_that_fit_after_scaling_do_not_overflow_before_it():
    vector = np.full((1, 1, 64), 60, "float16")  # 60 * 60 * 64 = 230400 is past 65504, an eighth of it is not
    scores = dot_product_scores(ops.convert_to_tensor(vector), ops.convert_to_tensor(vector), 64**-0.5)
    assert_close(as_numpy(scores), np.float16([[[28800]]]))


def test_variance_of_the_scores_at_the_start_is_what_the_docstring_says():
    Dq, Dk = 40, 60
    layer = BilinearAttention(kernel_initializer="glorot_uniform")
    queries, keys = normal(1, 300, Dq, seed=1), normal(1, 300, Dk, seed=2)
    layer.build(queries.shape, keys.shape, keys.shape)
    variance = float(np.var(as_numpy(layer.score(queries, keys))))
    assert abs(variance / (2 * Dq * Dk / (Dq + Dk)) - 1) < 0.1


@pytest.mark.parametrize("size", [4, 256])
def test_scores_of_standard_normal_vectors_have_unit_variance(size):
    scores = DotProductAttention().score(normal(1, 200, size), normal(1, 300, size, seed=1))
    assert abs(float(ops.var(scores)) - 1) < 0.1  # 500 vectors: three standard errors of the variance at size 4


def test_a_size_known_only_when_it_runs():
    inputs = [keras.Input((None, None)) for _ in range(3)]
    model = keras.Model(inputs, DotProductAttention()(*inputs))
    arrays = [normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 6)]
    assert_close(model.predict(arrays, verbose=0), as_numpy(DotProductAttention()(*arrays)))


@pytest.mark.parametrize("factor", [1e-4, 1e3, 1e15, 1e25])
def test_the_length_of_a_vector_does_not_count(factor):
    queries, keys, values = inputs()
    layer = CosineAttention(0.3)
    scaled = layer(queries * np.float32(factor), keys / np.float32(factor), values)
    assert_close(as_numpy(scaled), as_numpy(layer(queries, keys, values)), tolerance=1e-5)


def test_zeros_score_zero_and_have_finite_gradients():
    queries, keys, values = inputs()
    queries[0, 1], keys[1, 2] = 0.0, 0.0
    layer = CosineAttention(0.5)
    layer.build(queries.shape, keys.shape, values.shape)
    scores = as_numpy(layer.score(queries, keys))
    assert np.all(scores[0, 1] == 0)
    assert np.all(scores[1, :, 2] == 0)
    program = gradients_of(lambda *x: ops.sum(layer(*x) ** 2), 3, layer.trainable_variables)
    assert all(np.isfinite(as_numpy(gradient)).all() for gradient in program(*map(ops.convert_to_tensor, inputs())))
    dirty = program(*map(ops.convert_to_tensor, (queries, keys, values)))
    assert all(np.isfinite(as_numpy(gradient)).all() for gradient in dirty)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_squares_do_not_leave_half_precision(policy):
    queries, keys, values = (300.0 * array for array in inputs())
    (_, half), (_, full) = (
        CosineAttention(dtype=dtype)(queries, keys, values, return_attention_scores=True)
        for dtype in (policy, "float32")
    )
    np.testing.assert_allclose(as_numpy(ops.cast(half, "float32")), as_numpy(full), atol=2e-2)  # bfloat16 has 8 bits


@only_on("torch", reason="there alone products lose digits")
def test_products_of_float64_are_what_the_documentation_says():
    """Should Keras have mended it, docs/concepts.md is to be mended as well."""
    vectors = ops.cast(normal(3, 3), "float64")
    assert keras.backend.standardize_dtype(ops.matmul(vectors, vectors).dtype) == "float32"
