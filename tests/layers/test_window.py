"""Sliding windows beyond the contract, which puts one with every other mask."""

import numpy as np
import pytest

from keras_attn import DotProductAttention
from keras_attn._maths.order import order_mask
from keras_attn._tensors import Pairs

LENGTHS = (4, 6, 6)
INPUTS = [np.random.default_rng(length).normal(size=(2, length, 3)).astype("float32") for length in LENGTHS]


def test_window_without_bounds_is_no_mask():
    assert order_mask(Pairs(window=(None, None)), 4, 6) is None


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), (-1, 0), (1.0, 0), (True, 0), "12"])
def test_window_other_than_a_pair_is_refused(window):
    with pytest.raises(ValueError, match=r"`window` must be a pair \(left, right\)"):
        DotProductAttention()(*INPUTS, window=window)
