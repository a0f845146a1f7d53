"""Softmax, sparsemax and sigmoid over the keys that take part: numbers, masks, gradients."""

import numpy as np
import pytest
import reference
from backends import MODES, compiled, gradients_of
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import DotProductAttention
from keras_attn._maths.normalizers import NORMALIZERS

every_normalizer = pytest.mark.parametrize("name", NORMALIZERS)
MASK = np.array([[True, True, False, True], [False, False, False, False], [False, True, False, False]])


def weights_of(name, scores, mask=None, dtype="float32"):
    tensor = ops.cast(ops.convert_to_tensor(scores), dtype)
    return as_numpy(
        ops.cast(NORMALIZERS[name](tensor, None if mask is None else ops.convert_to_tensor(mask)), "float32")
    )


def expected(name, scores, mask):
    result = np.zeros(scores.shape)
    for row, keep, weights in zip(scores, mask, result, strict=True):
        weights[keep] = reference.NORMALIZERS[name](list(map(float, row[keep])))
    return result


def test_sparsemax_worked_by_hand():
    # 0.6 and 0.5 share the weight; their mean of 0.55 stands for a half each; 0.05 is below the threshold of 0.05
    assert_close(weights_of("sparsemax", [[0.6, 0.5, 0.05, -3.0]]), np.array([[0.55, 0.45, 0.0, 0.0]]), "float32")
    assert_close(weights_of("sparsemax", [[2.0, 0.9]]), np.array([[1.0, 0.0]]), "float32")
    assert_close(weights_of("sparsemax", [[1.0, 1.0, 1.0]]), np.full((1, 3), 1 / 3), "float32")


@every_normalizer
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1e4])
def test_agrees_with_the_oracle(name, scale):
    rng = np.random.default_rng(3)
    scores, mask = (scale * rng.normal(size=(50, 9))).astype("float32"), rng.random((50, 9)) < 0.6
    # at scale s a score is rounded by s 6e-8, and so is a weight that is a difference of scores
    tolerance = max(2e-6, scale * 5e-7) if name == "sparsemax" else 2e-6
    np.testing.assert_allclose(weights_of(name, scores, mask), expected(name, scores, mask), atol=tolerance, rtol=0)
    everything = np.ones_like(mask)
    np.testing.assert_allclose(weights_of(name, scores), expected(name, scores, everything), atol=tolerance, rtol=0)


@every_normalizer
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_masked_scores_count_for_nothing(name, garbage):
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


@pytest.mark.parametrize(
    ("name", "mode"), [(name, MODES[(n + m) % len(MODES)]) for n, name in enumerate(NORMALIZERS) for m in (0, 1)]
)
def test_gradients_agree_with_differences(name, mode):
    rng = np.random.default_rng(2)
    scores, upstream = rng.normal(size=MASK.shape).astype("float32"), rng.normal(size=MASK.shape).astype("float32")
    mask = ops.convert_to_tensor(MASK)

    def loss(scores, upstream):
        return ops.sum(NORMALIZERS[name](scores, mask) * upstream)

    program = compiled(gradients_of(loss, 1), mode)
    (gradient,) = map(as_numpy, program(ops.convert_to_tensor(scores), ops.convert_to_tensor(upstream)))
    step, exact = 1e-6, np.zeros(MASK.shape)
    for index in np.ndindex(*MASK.shape):
        shifts = np.zeros(MASK.shape)
        shifts[index] = step
        ends = (np.sum(expected(name, scores.astype("float64") + sign * shifts, MASK) * upstream) for sign in (1, -1))
        exact[index] = (next(ends) - next(ends)) / (2 * step)
    np.testing.assert_allclose(gradient, exact, atol=1e-5, rtol=0)
    assert np.all(gradient[~MASK] == 0)


@every_normalizer
def test_axes_of_size_zero(name):
    layer, rng = DotProductAttention(normalizer=name), np.random.default_rng(0)
    for Tq, Tk in ((0, 5), (3, 0)):
        inputs = [rng.normal(size=(2, length, 4)).astype("float32") for length in (Tq, Tk, Tk)]
        output, weights = layer(*inputs, return_attention_scores=True)
        assert weights.shape == (2, Tq, Tk)
        assert np.all(as_numpy(output) == 0)
