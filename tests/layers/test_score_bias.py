"""Score bias: broadcasting, half precision, additive masks, and biases of single heads."""

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


def draw_bias(shape: tuple, dtype: str = "float32") -> np.ndarray:
    return 2 * np.random.default_rng(5).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_bias_broadcasts_to_the_scores(shape):
    case = CASES[0]
    layer, inputs, masks = case.layer(), case.inputs(), {"score_bias": draw_bias(shape)}
    assert_close(compute_outputs(layer, inputs, masks)[0], compute_expected(case, layer, inputs, masks)[0], "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_adds_the_bias_in_float32(dtype):
    """All scores are equal, so that the weights depend on the bias only."""
    layer, x = DotProductAttention(dtype=dtype), np.ones((1, 2, 4), "float32")
    bias = np.array([[[2.0, 0.0], [0.0, 2.0]]], "float32")
    _, weights = layer(x, x, x, score_bias=bias, return_attention_scores=True)
    weight = np.exp(2) / (1 + np.exp(2))
    expected = np.array([[[weight, 1 - weight], [1 - weight, weight]]])
    np.testing.assert_allclose(to_numpy(weights).astype("float64"), expected, atol=4e-3)


def test_additive_mask_of_large_numbers_works_in_float16():
    """-1e9, the fill value of other libraries, overflows in float16. A row of -1e9 masks no key."""
    layer = DotProductAttention(dtype="mixed_float16")
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    bias = np.array([[[-1e9] * 3, [0, -1e9, 0], [0, 0, -np.inf]]], "float32")
    inputs = [keras.Input((3, 4)), keras.Input((3, 3))]
    model = keras.Model(inputs, layer(*3 * inputs[:1], score_bias=inputs[1], return_attention_scores=True))
    weights = to_numpy(model([x, bias])[1])
    clone = keras.Model.from_config(model.get_config())
    # With more operations, a loaded model has two operations of one name, or cannot be loaded.
    assert len(clone.operations) == len(model.operations) == 3
    expected = to_numpy(layer(x, x, x, return_attention_scores=True)[1])
    assert_close(weights[0, 0], expected[0, 0], "float16")
    assert weights[0, 1, 1] == weights[0, 2, 2] == 0
    np.testing.assert_allclose(weights.astype("float32").sum(-1), 1, atol=2e-3)


FILL_VALUES = {"-1e9": -1e9, "lowest": float(np.finfo("float32").min), "float64": -1e300, "infinity": -np.inf}
MASKS = {
    "causal": {"use_causal_mask": True},
    "lengths": {"valid_lens": np.array([[3, 2, 3]])},
    "pairs": {"attention_mask": np.array([[[True, False, False], [True, True, False], [True, True, True]]])},
}
FILL_CASES = [
    ("float32", "-1e9", "causal", False),
    ("float16", "lowest", "lengths", True),
    ("mixed_bfloat16", "infinity", "pairs", False),
    pytest.param("mixed_float16", "float64", "causal", True, marks=pytest.mark.x64),
]


@pytest.mark.parametrize(("dtype", "fill", "mask", "has_heads"), FILL_CASES)
def test_weights_are_finite_if_a_bias_fills_all_unmasked_keys(dtype, fill, mask, has_heads):
    """The bias masks padding on the left; the first query of a causal mask has no other keys."""
    layer, masks, fill_value = DotProductAttention(dtype=dtype), MASKS[mask], FILL_VALUES[fill]
    layer = MultiHeadAttention(layer, 2, dtype=dtype) if has_heads else layer
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    bias = np.array([[[fill_value, fill_value, 0.0]]]).astype("float64" if fill == "float64" else "float32")
    _, weights = layer(x, x, x, score_bias=bias, return_attention_scores=True, **masks)
    weights = to_numpy(weights).astype("float32").reshape(-1, 3, 3)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-2)
    expected_mask = np.tril(np.ones((3, 3), bool)) if "valid_lens" not in masks else np.arange(3) < [[3], [2], [3]]
    assert np.all(weights[:, ~expected_mask] == 0)
    assert np.all(weights[:, 2, :2] == 0)  # the third query has a key without a fill value


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_bias_of_a_fully_masked_query_does_not_change_gradients(poison):
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
def test_each_head_adds_its_bias(shape, groups):
    """The expected weights of each head are computed from its share of the kernels."""
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(B, Tq, 8)).astype("float32"), rng.normal(size=(B, Tk, 8)).astype("float32")
    layer, bias = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=groups), draw_bias(shape)
    masks = {"valid_lens": np.array([2, 4]), "score_bias": bias}
    _, weights = layer(queries, keys, keys, **masks, return_attention_scores=True)
    query_heads = np.moveaxis(to_numpy(layer.W_q(queries)).reshape(B, Tq, 4, -1), 2, 0)
    key_heads = np.moveaxis(to_numpy(layer.W_k(keys)).reshape(B, Tk, groups or 4, -1), 2, 0)
    for head in range(4):
        scores = query_heads[head] @ np.swapaxes(key_heads[head // (4 // (groups or 4))], -1, -2) / np.sqrt(2)
        head_bias = bias if bias.ndim < 4 else bias[:, head]
        expected = reference.masked_softmax(scores + head_bias, masks["valid_lens"])
        np.testing.assert_allclose(to_numpy(weights)[:, head], expected, atol=2e-6)
