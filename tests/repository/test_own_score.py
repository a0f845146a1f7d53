"""The subclass of docs/howto/own-score.md: scores, masks, options and heads; the page saves and exports it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import assert_close, assert_identical

import keras_attn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "own-score.md"


@pytest.fixture(scope="module")
def layer_class() -> Any:
    """Class of the first code block of the page."""
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"__name__": "page"}
    exec(block[1], names)
    return names["RatedDistance"]


@pytest.fixture
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"queries": (2, 3, 4), "keys": (2, 5, 4), "values": (2, 5, 6)}
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def test_subclass_computes_its_score_and_masks_do_not_leak(layer_class, inputs):
    layer, valid_lens = layer_class(rate=0.5), np.array([2, 0])
    distances = 0.5 * np.abs(inputs["queries"][:, :, None] - inputs["keys"][:, None]).sum(-1)
    weights = np.exp(-distances) / np.exp(-distances).sum(-1, keepdims=True)
    assert_close(layer(**inputs), weights @ inputs["values"])
    output = layer(**inputs, valid_lens=valid_lens)
    poisoned = {name: inputs[name].copy() for name in ("keys", "values")}
    for array in poisoned.values():
        array[0, 2:], array[1] = np.nan, np.inf
    assert_identical(layer(inputs["queries"], **poisoned, valid_lens=valid_lens), output)
    shorter = layer(inputs["queries"][:1], inputs["keys"][:1, :2], inputs["values"][:1, :2])
    assert_close(output[0], shorter[0])
    assert_identical(output[1], np.zeros((3, 6), "float32"))
    assert_close(layer(**inputs, use_causal_mask=True)[:, 0], inputs["values"][:, 0])
    assert_close(layer(**inputs, window=(0, 0)), inputs["values"][:, :3])


def test_subclass_takes_dropout_normalizer_precompute_and_heads(layer_class, inputs):
    layer = layer_class(dropout=0.5, seed=1)
    dropped = layer(**inputs, training=True)
    assert np.abs(dropped - layer(**inputs)).max() > 0.1
    assert_identical(layer_class.from_config(layer.get_config())(**inputs, training=True), dropped)
    layer = layer_class(normalizer="sparsemax")
    output, weights = layer(**inputs, return_attention_scores=True)
    assert_close(np.asarray(weights).sum(-1), np.ones((2, 3), "float32"))
    assert (np.asarray(weights) == 0).any()
    assert_close(layer(inputs["queries"], layer.precompute(inputs["keys"]), inputs["values"]), output)
    heads = keras_attn.MultiHeadAttention(layer_class(), num_heads=2)
    assert heads(**inputs, return_attention_scores=True)[1].shape == (2, 2, 3, 5)
