"""Entropy and coverage of attention weights: examples by hand, masks, half precision and invalid arguments."""

import numpy as np
import pytest
from layer_contract import to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import attention_entropy, coverage

WEIGHTS = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[0.25, 0.25, 0.5], [0.0, 0.0, 0.0]]], "float32")


def test_entropy_equals_an_example_by_hand():
    expected = np.array([[np.log(2), 0.0], [0.5 * np.log(4) + 0.5 * np.log(2), 0.0]])
    assert_close(to_numpy(attention_entropy(WEIGHTS)), expected, "float32")


def test_coverage_equals_an_example_by_hand():
    assert_identical(to_numpy(coverage(WEIGHTS)), np.array([[1.5, 0.5, 0.0], [0.25, 0.25, 0.5]], "float32"))


def test_masked_weights_are_ignored():
    """Two of four keys are padding with weights that are not zero."""
    weights = np.full((1, 2, 4), 0.25, "float32")
    mask = np.array([True, True, False, False])
    assert_close(to_numpy(attention_entropy(weights, mask=mask)), np.full((1, 2), np.log(2)), "float32")
    assert_close(to_numpy(coverage(weights, mask=mask)), np.array([[0.5, 0.5, 0.0, 0.0]]), "float32")
    three_keys = np.array([True, True, True, False])
    assert_close(to_numpy(attention_entropy(weights, mask=three_keys)), np.full((1, 2), np.log(3)), "float32")
    poisoned_weights = np.where(mask, weights, np.float32(np.nan))
    for function in (coverage, attention_entropy):
        assert_identical(*(to_numpy(function(array, mask=mask)) for array in (poisoned_weights, weights)))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_precision_is_summed_in_float32(dtype):
    weights = np.full((1, 4096, 1), 1.0, dtype)
    sums = to_numpy(coverage(weights))
    assert sums.dtype == "float32"
    assert sums[0, 0] == 4096  # in float16 a sum of ones stops at 2048


@pytest.mark.parametrize("function", [attention_entropy, coverage])
def test_invalid_arguments_are_rejected(function):
    with pytest.raises(TypeError, match="`weights` must be floats"):
        function(np.ones((2, 3), "int32"))
    with pytest.raises(ValueError, match="`weights` must have at least 2 axes"):
        function(np.ones(3, "float32"))
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        function(WEIGHTS, mask=np.ones(3, "float32"))
    with pytest.raises(ValueError, match="`mask` must broadcast"):
        function(WEIGHTS, mask=np.ones(4, "bool"))
