"""A bias that is added to the scores, beyond the contract: what it may hold, and heads with biases of their own."""

import keras
import numpy as np
import pytest
import reference
from backends import compute_gradients
from keras import ops
from layer_contract import CASES, B, Tk, Tq, compute_expected, compute_outputs, to_numpy
from tolerances import assert_close

from keras_attn import DotProductAttention, MultiHeadAttention

SHAPES = {
    "each pair": (B, Tq, Tk),
    "all examples": (Tq, Tk),
    "each key": (B, 1, Tk),
    "each query": (1, Tq, 1),
    "all": (),
}


def bias_of(shape: tuple, dtype: str = "float32") -> np.ndarray:
    return 2 * np.random.default_rng(5).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_bias_broadcasts_to_the_scores(shape):
    case = CASES[0]
    layer, inputs, masks = case.layer(), case.inputs(), {"score_bias": bias_of(shape)}
    assert_close(compute_outputs(layer, inputs, masks)[0], compute_expected(case, layer, inputs, masks)[0], "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_adds_the_bias_in_float32(dtype):
    """Scores of 30 and more, and a bias that takes them back: their sum is made in float32."""
    layer = DotProductAttention(dtype=dtype)
    x = np.ones((1, 2, 4), "float32")
    bias = np.array([[[2.0, 0.0], [0.0, 2.0]]], "float32")
    _, weights = layer(x, x, x, score_bias=bias, return_attention_scores=True)
    likely = np.exp(2) / (1 + np.exp(2))
    exact = np.array([[[likely, 1 - likely], [1 - likely, likely]]])
    np.testing.assert_allclose(to_numpy(weights).astype("float64"), exact, atol=4e-3)


def test_additive_mask_of_large_numbers_works_in_float16():
    """-1e9, as additive masks of other libraries hold, would be minus infinity; a row of it is that for no key."""
    layer = DotProductAttention(dtype="mixed_float16")
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    bias = np.array([[[-1e9] * 3, [0, -1e9, 0], [0, 0, -np.inf]]], "float32")
    given = [keras.Input((3, 4)), keras.Input((3, 3))]
    model = keras.Model(given, layer(*3 * given[:1], score_bias=given[1], return_attention_scores=True))
    weights = to_numpy(model([x, bias])[1])
    again = keras.Model.from_config(model.get_config())
    assert len(again.operations) == len(model.operations) == 3  # else a saved model loads with two of one name, or not
    plain = to_numpy(layer(x, x, x, return_attention_scores=True)[1])
    assert_close(weights[0, 0], plain[0, 0], "float16")
    assert weights[0, 1, 1] == weights[0, 2, 2] == 0
    np.testing.assert_allclose(weights.astype("float32").sum(-1), 1, atol=2e-3)


FILLS = {"-1e9": -1e9, "lowest": float(np.finfo("float32").min), "float64": -1e300, "infinity": -np.inf}
MASKED = {
    "causal": {"use_causal_mask": True},
    "lengths": {"valid_lens": np.array([[3, 2, 3]])},
    "pairs": {"attention_mask": np.array([[[True, False, False], [True, True, False], [True, True, True]]])},
}
PAIRS = [
    ("float32", "-1e9", "causal", False),
    ("float16", "lowest", "lengths", True),
    ("mixed_bfloat16", "infinity", "pairs", False),
    pytest.param("mixed_float16", "float64", "causal", True, marks=pytest.mark.x64),
]


@pytest.mark.parametrize(("dtype", "fill", "kind", "heads"), PAIRS)
def test_additive_mask_is_finite_beside_other_masks(dtype, fill, kind, heads):
    """Padding on the left, as an added mask, where a causal one leaves the first query nothing else."""
    layer, masks, number = DotProductAttention(dtype=dtype), MASKED[kind], FILLS[fill]
    layer = MultiHeadAttention(layer, 2, dtype=dtype) if heads else layer
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    bias = np.array([[[number, number, 0.0]]]).astype("float64" if fill == "float64" else "float32")
    _, weights = layer(x, x, x, score_bias=bias, return_attention_scores=True, **masks)
    weights = to_numpy(weights).astype("float32").reshape(-1, 3, 3)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-2)
    taking_part = np.tril(np.ones((3, 3), bool)) if "valid_lens" not in masks else np.arange(3) < [[3], [2], [3]]
    assert np.all(weights[:, ~taking_part] == 0)
    assert np.all(weights[:, 2, :2] == 0)  # where there is another key


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_poison_in_the_bias_of_a_query_without_keys_reaches_no_gradient(poison):
    layer = DotProductAttention()
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    bias = np.zeros((2, 3, 3), "float32")
    bias[1, 2] = poison
    mask = np.array([[True] * 3, [True, True, False]])

    def loss(x):
        return ops.sum(ops.square(layer(x, x, x, queries_mask=mask, score_bias=bias)))

    (gradient,) = compute_gradients(loss, 1)(ops.convert_to_tensor(x))
    assert np.isfinite(to_numpy(gradient)).all()


@pytest.mark.parametrize(
    ("shape", "groups"), [((B, 4, Tq, Tk), None), ((1, 4, 1, 1), 2), ((B, Tq, Tk), 2), ((Tq, Tk), None)], ids=str
)
def test_each_head_gets_its_bias(shape, groups):
    """Each head by itself, as a layer of one head with its share of the kernels."""
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(B, Tq, 8)).astype("float32"), rng.normal(size=(B, Tk, 8)).astype("float32")
    layer, bias = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=groups), bias_of(shape)
    masks = {"valid_lens": np.array([2, 4]), "score_bias": bias}
    _, weights = layer(queries, keys, keys, **masks, return_attention_scores=True)
    heads = np.moveaxis(to_numpy(layer.W_q(queries)).reshape(B, Tq, 4, -1), 2, 0)
    of_keys = np.moveaxis(to_numpy(layer.W_k(keys)).reshape(B, Tk, groups or 4, -1), 2, 0)
    for head in range(4):
        scores = heads[head] @ np.swapaxes(of_keys[head // (4 // (groups or 4))], -1, -2) / np.sqrt(2)
        own = bias if bias.ndim < 4 else bias[:, head]
        exact = reference.masked_softmax(scores + own, masks["valid_lens"])
        np.testing.assert_allclose(to_numpy(weights)[:, head], exact, atol=2e-6)
