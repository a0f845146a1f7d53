"""Entropy and coverage of weights."""

import numpy as np
import pytest
from layer_contract import to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import attention_entropy, coverage

WEIGHTS = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[0.25, 0.25, 0.5], [0.0, 0.0, 0.0]]], "float32")


def test_entropy_equals_an_example_by_hand():
    exact = np.array([[np.log(2), 0.0], [0.5 * np.log(4) + 0.5 * np.log(2), 0.0]])
    assert_close(to_numpy(attention_entropy(WEIGHTS)), exact, "float32")


def test_coverage_equals_an_example_by_hand():
    assert_identical(to_numpy(coverage(WEIGHTS)), np.array([[1.5, 0.5, 0.0], [0.25, 0.25, 0.5]], "float32"))


def test_masked_weights_do_not_count():
    """Weights over four keys, of which two are padding that got weight all the same."""
    weights = np.full((1, 2, 4), 0.25, "float32")
    mask = np.array([True, True, False, False])
    assert_close(to_numpy(attention_entropy(weights, mask=mask)), np.full((1, 2), np.log(2)), "float32")
    assert_close(to_numpy(coverage(weights, mask=mask)), np.array([[0.5, 0.5, 0.0, 0.0]]), "float32")
    three = np.array([True, True, True, False])
    assert_close(to_numpy(attention_entropy(weights, mask=three)), np.full((1, 2), np.log(3)), "float32")
    poisoned = np.where(mask, weights, np.float32(np.nan))
    assert_identical(to_numpy(coverage(poisoned, mask=mask)), to_numpy(coverage(weights, mask=mask)))
    assert_identical(to_numpy(attention_entropy(poisoned, mask=mask)), to_numpy(attention_entropy(weights, mask=mask)))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_precision_is_summed_in_float32(dtype):
    weights = np.full((1, 4096, 1), 1.0, dtype)
    covered = to_numpy(coverage(weights))
    assert covered.dtype == "float32"
    assert covered[0, 0] == 4096  # in float16 a sum of ones stops at 2048


@pytest.mark.parametrize("function", [attention_entropy, coverage])
def test_bad_input_is_refused(function):
    with pytest.raises(TypeError, match="`weights` must be floats"):
        function(np.ones((2, 3), "int32"))
    with pytest.raises(ValueError, match="`weights` must have at least 2 axes"):
        function(np.ones(3, "float32"))
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        function(WEIGHTS, mask=np.ones(3, "float32"))
    with pytest.raises(ValueError, match="`mask` must broadcast"):
        function(WEIGHTS, mask=np.ones(4, "bool"))
