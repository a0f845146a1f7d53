"""Sliding windows beyond the contract, which puts one with every other mask."""

import keras
import numpy as np
import pytest
from contract_cases import as_numpy
from tolerances import assert_close, assert_identical

from keras_attn import DotProductAttention
from keras_attn._maths.order import order_mask
from keras_attn._tensors import Pairs

LENGTHS = (4, 6, 6)
INPUTS = [np.random.default_rng(length).normal(size=(2, length, 3)).astype("float32") for length in LENGTHS]


def test_a_window_without_bounds_is_no_mask():
    assert order_mask(Pairs(window=(None, None)), 4, 6) is None


def test_survives_saving_in_a_functional_model(tmp_path):
    entries = [keras.Input((None, 3)) for _ in LENGTHS]
    model = keras.Model(entries, DotProductAttention()(*entries, window=(2, None)))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_identical(as_numpy(again(INPUTS)), as_numpy(model(INPUTS)))
    assert_close(as_numpy(model(INPUTS)), as_numpy(DotProductAttention()(*INPUTS, window=(2, None))), "float32")


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), (-1, 0), (1.0, 0), (True, 0), "12"])
def test_anything_else_is_refused(window):
    with pytest.raises(ValueError, match=r"`window` must be a pair \(left, right\)"):
        DotProductAttention()(*INPUTS, window=window)
