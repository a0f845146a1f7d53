"""Sliding windows beyond the contract, which puts one with every other mask."""

import keras
import numpy as np
import pytest
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn._masking import window_mask

B, Tq, Tk, D = 2, 4, 6, 3


def inputs():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(B, length, D)).astype("float32") for length in (Tq, Tk, Tk)]


@pytest.mark.parametrize("window", [(0, 0), (1, 0), (0, 2), (2, 1), (None, 1), (1, None), (50, 50)])
def test_window_counts_keys_on_each_side(window):
    left, right = window
    exact = [
        [(left is None or i - j <= left) and (right is None or j - i <= right) for j in range(Tk)] for i in range(Tq)
    ]
    assert_identical(as_numpy(window_mask(Tq, Tk, window)), np.array(exact))


def test_a_window_without_bounds_is_no_mask():
    assert window_mask(Tq, Tk, (None, None)) is None


def test_garbage_outside_the_window_does_not_leak():
    queries, keys, values = inputs()
    layer = AdditiveAttention(5, seed=0)
    clean = as_numpy(layer(queries, keys, values, window=(1, 0)))
    keys[:, -1], values[:, -1] = 1e4, -1e4  # key 5, which no query of the four sees
    assert_identical(as_numpy(layer(queries, keys, values, window=(1, 0))), clean)
    keys[:, 3], values[:, 3] = 1e4, -1e4  # key 3, which query 3 alone sees
    assert_identical(as_numpy(layer(queries, keys, values, window=(1, 0)))[:, :3], clean[:, :3])


def test_survives_saving_in_a_functional_model(tmp_path):
    queries, keys, values = (keras.Input((None, D)) for _ in range(3))
    model = keras.Model([queries, keys, values], DotProductAttention()(queries, keys, values, window=(2, None)))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_identical(as_numpy(again(inputs())), as_numpy(model(inputs())))
    assert_close(as_numpy(model(inputs())), as_numpy(DotProductAttention()(*inputs(), window=(2, None))), "float32")


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), (-1, 0), (1.0, 0), (True, 0), "12"])
def test_anything_else_is_refused(window):
    with pytest.raises(ValueError, match=r"`window` must be a pair \(left, right\)"):
        DotProductAttention()(*map(ops.convert_to_tensor, inputs()), window=window)
