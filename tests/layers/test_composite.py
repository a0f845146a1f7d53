"""What an exporter gets of a call is the call: its function of its tensors gives what the layer does."""

from functools import partial

import numpy as np
import pytest
from contract_cases import as_numpy, randomise
from tolerances import assert_close, assert_identical

from keras_attn import (
    AdditiveAttention,
    BilinearAttention,
    CosineAttention,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
)
from keras_attn._pooling.composite import evaluated_by
from keras_attn._tensors import Heads

H, T = 4, 5
SCORES = {
    "additive": partial(AdditiveAttention, 7),
    "additive, normalized": partial(AdditiveAttention, 6, normalize=True),
    "bilinear": BilinearAttention,
    "cosine": partial(CosineAttention, 0.2),
    "dot product": DotProductAttention,
    "gaussian": GaussianAttention,
}


class Kept:
    """An evaluator that computes the functions and keeps the composites."""

    hides_masked = False

    def __init__(self):
        self.composites = []

    def __call__(self, composite, returns_weights):
        self.composites.append(composite)
        return composite.function(**composite.tensors)


def evaluated(layer, *args, compare=assert_close, **options):
    """The composite of a call, and its outputs, which are those without an evaluator."""
    layer(*args, **options)
    randomise(layer)
    kept = Kept()
    expected = layer(*args, return_attention_scores=True, **options)
    with evaluated_by(kept):
        actual = [as_numpy(each) for each in layer(*args, return_attention_scores=True, **options)]
    for one, other in zip(actual, expected, strict=True):
        compare(one, as_numpy(other))
    (composite,) = kept.composites
    return composite, actual


def sequences(size=8, batch=3):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((batch, T, size)).astype("float32") for _ in range(3)]


IN_HEADS = [score for score in SCORES if score != "gaussian"]
CALLS = [(score, (1, 2, H)[n % 3], ("softmax", "sigmoid")[n % 2]) for n, score in enumerate(IN_HEADS)]


@pytest.mark.parametrize(("score", "groups", "normalizer"), CALLS)
def test_exporter_gets_all_heads_as_one_call(score, groups, normalizer):
    layer = MultiHeadAttention(SCORES[score](normalizer=normalizer), H, key_dim=3, value_dim=2, num_kv_heads=groups)
    mask = np.random.default_rng(1).random((3, H, T, T)) < 0.6
    mask[0, 1] = False
    composite, _ = evaluated(layer, *sequences(), np.array([2, 0, 5]), attention_mask=mask)
    assert (composite.heads, composite.normalizer) == (Heads(H, groups), normalizer)


@pytest.mark.parametrize("score", ["additive", "cosine"])
def test_poison_masked_in_all_heads_changes_nothing(score):
    layer = MultiHeadAttention(SCORES[score](), H, key_dim=3)
    clean, dirty = sequences(), sequences()
    for array in dirty:
        array[:, 3:] = np.nan
    masks = {"valid_lens": np.array([3, 2, 0]), "queries_mask": np.broadcast_to(np.arange(T) < 3, (3, T))}
    _, expected = evaluated(layer, *clean, **masks)
    composite, actual = evaluated(layer, *dirty, **masks)
    for one, other in zip(actual, expected, strict=True):
        assert_identical(one, other)
    if score == "additive":  # the form in which an exporter writes it hangs on how large queries are
        assert np.isfinite(as_numpy(composite.tensors["queries"])).all()


@pytest.mark.parametrize(
    ("size", "name", "normalizer"),
    [(2, "distance", "softmax"), (8, "distance", "sigmoid"), (9, "dot_product", "sparsemax")],
)
def test_gaussian_scores_become_distances_or_products(size, name, normalizer):
    layer = GaussianAttention(2.0, normalizer=normalizer)
    composite, _ = evaluated(layer, *sequences(size), np.array([2, 0, 5]), window=(1, None))
    assert (composite.name, composite.normalizer) == (name, normalizer)
