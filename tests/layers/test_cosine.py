"""Cosine attention beyond the contract: lengths do not count, and zeros have no angle."""

import numpy as np
import pytest
from backends import gradients_of
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close

from keras_attn import CosineAttention


def inputs():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(2, length, 4)).astype("float32") for length in (3, 5, 5)]


@pytest.mark.parametrize("factor", [1e-4, 1e3, 1e15, 1e25])
def test_the_length_of_a_vector_does_not_count(factor):
    queries, keys, values = inputs()
    layer = CosineAttention(0.3)
    scaled = layer(queries * np.float32(factor), keys / np.float32(factor), values)
    assert_close(as_numpy(scaled), as_numpy(layer(queries, keys, values)), tolerance=1e-5)


def test_scores_lie_between_minus_and_plus_the_inverse_temperature():
    queries, _, values = inputs()
    layer = CosineAttention(0.25)
    keys = np.concatenate([queries, -queries, values[:, :2]], axis=1)
    layer.build(queries.shape, keys.shape, keys.shape)
    scores = as_numpy(layer.score(queries, keys))
    assert np.abs(scores).max() < 4.0001
    for query in range(3):
        assert_close(scores[:, query, query], np.full(2, 4.0), "float32")
        assert_close(scores[:, query, 3 + query], np.full(2, -4.0), "float32")


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
    weights = [
        as_numpy(
            ops.cast(CosineAttention(dtype=dtype)(queries, keys, values, return_attention_scores=True)[1], "float32")
        )
        for dtype in (policy, "float32")
    ]
    np.testing.assert_allclose(weights[0], weights[1], atol=2e-2)  # bfloat16 has 8 bits
