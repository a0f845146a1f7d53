"""Keras's own attention layers are lowered as ours are, and give what Keras gives, where a query has no keys too."""

from functools import cache

import keras
import numpy as np
import pytest
from stock_models import HEADS, some_inputs, with_every_mask, with_masks_of_keys
from tolerances import assert_close
from unproven import Unproven

from keras_attn_export._thresholds import LARGE, From

heads = keras.layers.MultiHeadAttention
groups = keras.layers.GroupQueryAttention
MODELS = {
    "heads": lambda: with_every_mask(heads(HEADS, 3, value_dim=5)),
    "heads with a window and dropout": lambda: with_every_mask(heads(HEADS, 3, sliding_window=2, dropout=0.1)),
    "heads with scores": lambda: with_every_mask(heads(HEADS, 3), scores=True),
    "groups with a gate": lambda: with_every_mask(groups(3, HEADS, 2, use_gate=True)),
    "groups with a window": lambda: with_every_mask(groups(3, HEADS, 1, sliding_window=1)),
    "groups with scores and dropout": lambda: with_every_mask(groups(3, HEADS, 1, dropout=0.1), scores=True),
    "products": lambda: with_masks_of_keys(keras.layers.Attention()),
    "scaled products with scores": lambda: with_masks_of_keys(keras.layers.Attention(use_scale=True), scores=True),
    "concatenated": lambda: with_masks_of_keys(keras.layers.Attention(True, "concat", dropout=0.1)),
    "additive": lambda: with_masks_of_keys(keras.layers.AdditiveAttention(dropout=0.1)),
    "additive without scale": lambda: with_masks_of_keys(keras.layers.AdditiveAttention(False), scores=True),
}
IN_TURN = ("heads", "scaled products with scores", "additive")
OF_KERAS = [
    pytest.mark.filterwarnings(f"ignore:{said}:UserWarning")
    for said in ("[\\s\\S]*destroy the mask", "[\\s\\S]*softmax over axis")
]
pytestmark = OF_KERAS


@cache
def traced(name):
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    for weight in model.weights:  # biases too, and scales that are ones
        weight.assign(np.random.default_rng(len(weight.shape)).standard_normal(weight.shape) * 0.5)
    return Unproven(model)


@pytest.mark.product("a case a layer of Keras and its options")
@pytest.mark.parametrize("lowering", ["portable", "fused", "adaptive"])
@pytest.mark.parametrize(
    "name",
    [name if name in IN_TURN else pytest.param(name, marks=pytest.mark.out_of_turn) for name in MODELS],
)
def test_numbers(name, lowering, tmp_path, monkeypatch):
    for kind in LARGE:
        monkeypatch.setitem(LARGE, kind, From(0, 20))
    found = traced(name)
    outputs = [output for output in found.signature.outputs if not output.endswith("_scores")]
    assert len(found.calls) == len(outputs), "a call stays as it is"
    run = found.written(tmp_path, lowering).run
    for (Tq, Tk), magnitude in {(5, 5): 1.0, (3, 7): 6.0, (7, 3): 1.0, (1, 1): 1.0}.items():
        inputs = some_inputs(found.model, Tq, Tk, magnitude=magnitude)
        actual = run(inputs)
        for output, exact in found.expected(inputs).items():
            assert_close(actual[output], exact, "float32", tolerance=1e-5 * max(1, np.abs(exact).max()))
