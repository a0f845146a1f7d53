"""A bias that is added to the scores, in every layer and on every path, and heads with biases of their own."""

import keras
import numpy as np
import pytest
from backends import BACKEND, COMPILED_MODES, MODES, compiled, every_mode, gradients_of, in_64_bits, precision_of
from contract_cases import CASES, VARIANTS, B, Tk, Tq, as_numpy, call, expected, gradients, outputs
from keras import ops
from layer_tests import pairs_in_turn
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention, _fused

every_layer = pytest.mark.parametrize("case", CASES + VARIANTS, ids=lambda case: case.name)
SHAPES = {
    "each pair": (B, Tq, Tk),
    "all examples": (Tq, Tk),
    "each key": (B, 1, Tk),
    "each query": (1, Tq, 1),
    "all": (),
    "keys alone": (Tk,),
}
MASKS = {
    "none": {},
    "lengths": {"valid_lens": np.array([0, 3])},
    "lengths by query": {"valid_lens": np.array([[1, 2, 5], [4, 0, 3]])},
    "causal": {"causal": True},
    "pairs": {"attention_mask": np.random.default_rng(0).random((B, Tq, Tk)) < 0.5},
    "queries": {"queries_mask": np.array([[True, False, True], [True, True, False]])},
}
BY_NAME = {case.name: case for case in CASES + VARIANTS}
PAIRS = [(case, masks) for case in BY_NAME for masks in MASKS]
IN_TURN = [
    pytest.param(BY_NAME[case], masks, id=f"{case}-{masks}", marks=() if runs else pytest.mark.out_of_turn)
    for (case, masks), runs in zip(PAIRS, pairs_in_turn(PAIRS), strict=True)
]


def bias_of(shape: tuple, dtype: str = "float32") -> np.ndarray:
    return 2 * np.random.default_rng(5).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(("case", "masks"), IN_TURN)
def test_is_added_before_the_mask(case, masks):
    layer, inputs = case.layer(), case.inputs()
    masks = {**MASKS[masks], "score_bias": bias_of((B, Tq, Tk))}
    output, weights = outputs(layer, inputs, masks)
    exact_output, exact_weights = expected(case, layer, inputs, masks)
    assert_close(output, exact_output, "float32")
    assert_close(weights, exact_weights, "float32")
    assert_close(as_numpy(call(layer, inputs, masks)), exact_output, "float32")
    without = {name: mask for name, mask in masks.items() if name != "score_bias"}
    assert np.abs(weights - outputs(layer, inputs, without)[1]).max() > 0.01


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_broadcasts_to_the_scores(shape):
    case = CASES[0]
    layer, inputs, masks = case.layer(), case.inputs(), {"score_bias": bias_of(shape)}
    assert_close(outputs(layer, inputs, masks)[0], expected(case, layer, inputs, masks)[0], "float32")


@in_64_bits
@every_layer
@every_mode
def test_gradients_agree_with_differences_of_the_oracle(case, mode):
    masks = {"valid_lens": np.array([[1, 2, 5], [4, 0, 3]])}
    layer, step = case.layer(dtype="float64"), 1e-6
    relative, absolute = (1e-6, 1e-8) if precision_of("float64") == "float64" else (1e-5, 1e-5)
    inputs = {name: array.astype("float64") for name, array in case.inputs().items()}
    bias, rng = bias_of((B, Tq, Tk), "float64"), np.random.default_rng(3)
    upstream, direction = rng.normal(size=(B, Tq, inputs["values"].shape[-1])), rng.normal(size=bias.shape)

    def program(bias, upstream):
        return ops.sum(upstream * call(layer, inputs, {**masks, "score_bias": bias}))

    (gradient,) = compiled(gradients_of(program, 1), mode)(*map(ops.convert_to_tensor, (bias, upstream)))

    def loss(shifted):
        return np.sum(upstream * expected(case, layer, inputs, {**masks, "score_bias": shifted})[0])

    difference = (loss(bias + step * direction) - loss(bias - step * direction)) / (2 * step)
    assert np.sum(as_numpy(gradient) * direction) == pytest.approx(difference, rel=relative, abs=absolute)
    masked = np.arange(Tk) >= masks["valid_lens"][..., None]
    assert np.all(as_numpy(gradient)[masked] == 0)


@every_layer
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
def test_may_be_anything_where_a_pair_takes_no_part(case, poison):
    layer, inputs = case.layer(), case.inputs()
    masks = {"valid_lens": np.array([[1, 2, 5], [4, 0, 3]]), "score_bias": bias_of((B, Tq, Tk))}
    masked = np.arange(Tk) >= masks["valid_lens"][..., None]
    clean = outputs(layer, inputs, masks)
    masks["score_bias"] = np.where(masked, np.float32(poison), masks["score_bias"])
    for actual, exact in zip(outputs(layer, inputs, masks), clean, strict=True):
        assert_identical(actual, exact)


def test_minus_infinity_is_a_mask():
    case = CASES[0]
    layer, inputs = case.layer(), case.inputs()
    seen = np.arange(Tk) < np.array([[[2]], [[4]]])
    biased = outputs(layer, inputs, {"score_bias": np.where(seen, 0, -np.inf).astype("float32")})
    for actual, exact in zip(biased, outputs(layer, inputs, {"attention_mask": seen}), strict=True):
        assert_close(actual, exact, "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
def test_in_half_precision(dtype):
    """Scores of 30 and more, and a bias that takes them back: their sum is made in float32."""
    layer = DotProductAttention(dtype=dtype)
    x = np.ones((1, 2, 4), "float32")
    bias = np.array([[[2.0, 0.0], [0.0, 2.0]]], "float32")
    _, weights = layer(x, x, x, score_bias=bias, return_attention_scores=True)
    likely = np.exp(2) / (1 + np.exp(2))
    exact = np.array([[[likely, 1 - likely], [1 - likely, likely]]])
    np.testing.assert_allclose(as_numpy(weights).astype("float64"), exact, atol=4e-3)


@pytest.mark.parametrize("symbolic", [False, True])
def test_masks_of_large_numbers_do_not_leave_float16(symbolic):
    """-1e9, as additive masks of other libraries hold, would be minus infinity; a row of it is that for no key."""
    layer = DotProductAttention(dtype="mixed_float16")
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    bias = np.array([[[-1e9] * 3, [0, -1e9, 0], [0, 0, -np.inf]]], "float32")
    if symbolic:
        given = [keras.Input((3, 4)), keras.Input((3, 3))]
        model = keras.Model(given, layer(*3 * given[:1], score_bias=given[1], return_attention_scores=True))
        weights = as_numpy(model([x, bias])[1])
        again = keras.Model.from_config(model.get_config())
        assert len(again.layers) == len(model.layers)
    else:
        weights = as_numpy(layer(x, x, x, score_bias=bias, return_attention_scores=True)[1])
    plain = as_numpy(layer(x, x, x, return_attention_scores=True)[1])
    assert_close(weights[0, 0], plain[0, 0], "float16")
    assert weights[0, 1, 1] == weights[0, 2, 2] == 0
    np.testing.assert_allclose(weights.astype("float32").sum(-1), 1, atol=2e-3)


FILLS = [
    pytest.param(-1e9, id="-1e9"),
    pytest.param(float(np.finfo("float32").min), id="lowest"),
    pytest.param(-1e300, id="float64", marks=pytest.mark.in_64_bits),
    pytest.param(-np.inf, id="infinity"),
]
MASKED = {
    "causal": {"use_causal_mask": True},
    "lengths": {"valid_lens": np.array([[3, 2, 3]])},
    "pairs": {"attention_mask": np.array([[[True, False, False], [True, True, False], [True, True, True]]])},
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("masks", MASKED.values(), ids=MASKED)
@pytest.mark.parametrize("heads", [False, True], ids=["one head", "heads"])
def test_a_mask_that_is_added_is_none_of_the_masks(heads, masks, fill, dtype):
    """Padding on the left, as an added mask, where a causal one leaves the first query nothing else."""
    layer = DotProductAttention(dtype=dtype)
    layer = MultiHeadAttention(layer, 2, dtype=dtype) if heads else layer
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    bias = np.array([[[fill, fill, 0.0]]])
    bias = bias.astype("float64" if fill == -1e300 else "float32")
    _, weights = layer(x, x, x, score_bias=bias, return_attention_scores=True, **masks)
    weights = as_numpy(weights).astype("float32").reshape(-1, 3, 3)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-2)
    taking_part = np.tril(np.ones((3, 3), bool)) if "valid_lens" not in masks else np.arange(3) < [[3], [2], [3]]
    assert np.all(weights[:, ~taking_part] == 0)
    assert np.all(weights[:, 2, :2] == 0)  # where there is another key


@pytest.mark.parametrize("taken", [(), (BACKEND,)], ids=["plain", "the operation of the backend"])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_of_a_query_without_keys_may_be_anything(poison, taken, monkeypatch):
    monkeypatch.setattr(_fused, "FASTER_ON", taken)
    layer = DotProductAttention()
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    bias = np.zeros((2, 3, 3), "float32")
    bias[1, 2] = poison
    mask = np.array([[True] * 3, [True, True, False]])

    def loss(x):
        return ops.sum(ops.square(layer(x, x, x, queries_mask=mask, score_bias=bias)))

    (gradient,) = gradients_of(loss, 1)(ops.convert_to_tensor(x))
    assert np.isfinite(as_numpy(gradient)).all()


@pytest.mark.parametrize("shape", [(B, 4, Tq, Tk), (1, 4, Tq, Tk), (4, 1, 1), (B, Tq, Tk), (Tq, Tk)], ids=str)
@pytest.mark.parametrize("groups", [None, 2])
def test_of_each_head(shape, groups):
    """Each head by itself, as a layer of one head with its share of the kernels."""
    if len(shape) == 3 and shape[0] == 4:
        shape = (1, *shape)
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(B, Tq, 8)).astype("float32"), rng.normal(size=(B, Tk, 8)).astype("float32")
    layer, bias = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=groups), bias_of(shape)
    masks = {"valid_lens": np.array([2, 4]), "score_bias": bias}
    _, weights = layer(queries, keys, keys, **masks, return_attention_scores=True)
    heads = np.moveaxis(as_numpy(layer.W_q(queries)).reshape(B, Tq, 4, -1), 2, 0)
    of_keys = np.moveaxis(as_numpy(layer.W_k(keys)).reshape(B, Tk, groups or 4, -1), 2, 0)
    for head in range(4):
        scores = heads[head] @ np.swapaxes(of_keys[head // (4 // (groups or 4))], -1, -2) / np.sqrt(2)
        own = bias if bias.ndim < 4 else bias[:, head]
        exact = softmax(np.where(np.arange(Tk) < np.array([[[2]], [[4]]]), scores + own, -np.inf))
        np.testing.assert_allclose(as_numpy(weights)[:, head], exact, atol=2e-6)


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("masks", [{}, {"causal": True}, {"valid_lens": np.array([0, 3])}], ids=str)
def test_the_operation_of_the_backend_takes_it(masks, monkeypatch):
    case = next(case for case in CASES if case.name == "dot_product")
    layer, inputs = case.layer(), case.inputs(Dv=4)
    masks = {**masks, "score_bias": bias_of((1, Tq, Tk))}
    monkeypatch.setattr(_fused, "FASTER_ON", ())
    plain = as_numpy(call(layer, inputs, masks))
    monkeypatch.setattr(_fused, "FASTER_ON", (BACKEND,))
    assert_close(as_numpy(call(layer, inputs, masks)), plain, "float32")


@pytest.mark.parametrize("mode", COMPILED_MODES if COMPILED_MODES != MODES else ["eager"])
def test_compiled(mode):
    case = CASES[0]
    layer, inputs, bias = case.layer(), case.inputs(), bias_of((B, Tq, Tk))
    program = compiled(lambda bias: call(layer, inputs, {"score_bias": bias}), mode, variables=layer.variables)
    assert_close(as_numpy(program(ops.convert_to_tensor(bias))), as_numpy(call(layer, inputs, {"score_bias": bias})))


def test_in_a_functional_model_that_is_saved(tmp_path):
    queries, keys = keras.Input((None, 4), name="queries"), keras.Input((None, 7), name="keys")
    bias = keras.Input((1, None, None), name="bias")
    layer = MultiHeadAttention(AdditiveAttention(8), 2, key_dim=3)
    output, weights = layer(queries, keys, keys, score_bias=bias, return_attention_scores=True)
    assert tuple(output.shape) == (None, None, 4)
    assert tuple(weights.shape) == (None, 2, None, None)
    model = keras.Model([queries, keys, bias], output)
    arrays = [np.random.default_rng(n).normal(size=s).astype("float32") for n, s in enumerate([(2, 3, 4), (2, 5, 7)])]
    arrays.append(bias_of((2, 1, 3, 5)))
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert_identical(as_numpy(again(arrays)), as_numpy(model(arrays)))
    assert np.abs(as_numpy(model(arrays)) - as_numpy(model([*arrays[:2], 0 * arrays[2]]))).max() > 0.01


@pytest.mark.parametrize(
    ("bias", "error", "said"),
    [
        (np.zeros((B, Tq, Tk), "int32"), TypeError, "`score_bias` must be floats.*attention_mask"),
        (np.zeros((B, Tq, Tk), "bool"), TypeError, "`score_bias` must be floats"),
        (np.zeros((B, Tq, Tk + 1), "float32"), ValueError, r"`score_bias` must broadcast to the scores.*\(2, 3, 6\)"),
        (np.zeros((B, 2, Tq, Tk), "float32"), ValueError, "`score_bias` must broadcast to the scores"),
    ],
)
def test_what_does_not_fit_is_refused(bias, error, said):
    case = CASES[0]
    with pytest.raises(error, match=said):
        call(case.layer(), case.inputs(), {"score_bias": bias})


def test_of_another_number_of_heads_is_refused():
    x = np.ones((B, Tq, 8), "float32")
    with pytest.raises(ValueError, match=r"`score_bias` must broadcast"):
        MultiHeadAttention(DotProductAttention(), 4)(x, x, x, score_bias=np.zeros((1, 3, Tq, Tq), "float32"))


def test_weights_get_the_gradients_that_they_have_without_it():
    """A bias of zeros changes nothing, and does not cut the tape."""
    case = CASES[0]
    layer, inputs = case.layer(), case.inputs()
    plain = gradients(layer, inputs)
    for name, gradient in gradients(layer, inputs, {"score_bias": np.zeros((1, 1, 1), "float32")}).items():
        assert_close(gradient, plain[name], "float32")
