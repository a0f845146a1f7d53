"""Fused attention of torch (`scaled_dot_product_attention`): calls that use it, equality with the plain form, masks."""

import numpy as np
import pytest
from backends import compute_gradients, run_only_on
from keras import ops
from layer_contract import Evaluator, draw_weights, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import BilinearAttention, CosineAttention, DotProductAttention, MultiHeadAttention
from keras_attn._pooling import attention_pooling
from keras_attn._pooling.composite import use_evaluator

B, T, D = 2, 5, 8
LAYERS = {
    "dot_product": DotProductAttention,
    "bilinear": BilinearAttention,
    "cosine": CosineAttention,
    "multi_head": lambda **options: MultiHeadAttention(DotProductAttention(**options), 2, dtype=options.get("dtype")),
    "groups_of_cosines": lambda **options: MultiHeadAttention(CosineAttention(**options), 4, num_kv_heads=2),
}
MASKS = {
    "none": {},
    "lengths": {"valid_lens": np.array([0, 3])},
    "lengths_of_queries": {"valid_lens": np.array([[0, 1, 2, 5, 9], [3, 0, 0, 1, 4]])},
    "causal": {"use_causal_mask": True},
    "causal_and_lengths": {"use_causal_mask": True, "valid_lens": np.array([0, 3])},
    "causal_window": {"use_causal_mask": True, "window": (2, None)},
    "pairs": {"attention_mask": np.arange(T * T).reshape(T, T) % 7 // 5 == 1},
    "keys": {"keys_mask": np.array([[True, False, True, True, False], [False] * T])},
    "queries": {"queries_mask": np.array([[True, False, True, True, False], [False] * T])},
    "bias": {"score_bias": 2 * np.random.default_rng(5).normal(size=(1, T, T)).astype("float32")},
}
MASKS["bias_and_lengths"] = MASKS["bias"] | MASKS["lengths"]
HEAD_MASK = np.ones((B, 2, T, T), bool)  # some queries are fully masked in one head only
HEAD_MASK[0, 0, 1], HEAD_MASK[1, 1, :, 2:], HEAD_MASK[1, :, 3] = False, False, False
pytestmark = run_only_on("torch", reason="other backends have no faster fused operation")


def pair_layers_and_masks():
    """Return pairs of names: multi-head attention with every mask, and each other layer with two masks."""
    masks = [*MASKS]
    pairs = [("multi_head", mask) for mask in masks]
    pairs += [(name, masks[(2 * n + m) % len(masks)]) for n, name in enumerate(LAYERS) for m in (0, 1)]
    return [*dict.fromkeys(pairs)]


@pytest.fixture
def calls(monkeypatch):
    """Options of each call of the fused operation."""
    import torch

    recorded_options = []
    operation = torch.nn.functional.scaled_dot_product_attention

    def record_call(*tensors, **options):
        mask = options["attn_mask"]  # CUDA kernels require an entry for each key, contiguous, in one of two dtypes
        if mask is not None:
            assert (mask.shape[-1], mask.stride(-1)) == (tensors[1].shape[-2], 1)
            assert mask.dtype in (torch.bool, tensors[0].dtype)
        recorded_options.append(options)
        return operation(*tensors, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", record_call)
    return recorded_options


def run_in_plain_form(monkeypatch, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(attention_pooling, "can_use_sdpa", lambda *_: False)
        return function(*arguments)


def draw_inputs(seed=0, leading=(B,), num_keys=T):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*leading, length, D)).astype("float32") for length in (T, num_keys, num_keys)]


def build_layer(name, **options):
    layer = LAYERS[name](**options)
    layer.build(*(array.shape for array in draw_inputs()))
    draw_weights(layer)
    for variable in layer.trainable_variables:
        variable.assign(0.3 * variable.value)  # scores of unit size, not of hundreds
    return layer


def assert_results_close(actual, expected):
    """Assert that results are equal within float32 rounding, relative to the largest element of each result."""
    # At least relative to 1: the gradient of the bias of `W_k` is zero up to rounding.
    for result, expected_result in zip(actual, expected, strict=True):
        scale = max(np.abs(expected_result).max(), 1.0)
        assert_close(result / scale, expected_result / scale, tolerance=1e-5)


def compute_results(layer, inputs, masks):
    """Return the output, and the gradients of a weighted sum of its squares by inputs and weights."""
    upstream = np.random.default_rng(9).normal(size=(*inputs[0].shape[:-1], D))

    def loss(*tensors):
        output = layer(*tensors, **masks)
        return ops.sum(ops.cast(upstream, output.dtype) * output * output)

    tensors = [ops.convert_to_tensor(array) for array in inputs]
    program = compute_gradients(loss, 3, layer.trainable_variables)
    return [to_numpy(tensor) for tensor in (layer(*tensors, **masks), *program(*tensors))]


def assert_equal_to_plain_form(calls, monkeypatch, layer, inputs, masks):
    num_calls, actual = len(calls), compute_results(layer, inputs, masks)
    assert len(calls) > num_calls
    num_calls = len(calls)
    expected = run_in_plain_form(monkeypatch, compute_results, layer, inputs, masks)
    assert len(calls) == num_calls
    assert_results_close(actual, expected)
    has_keys = expected[0].any(-1)  # fully masked queries return zeros
    assert np.array_equal(actual[0].any(-1), has_keys)
    assert not actual[1][~has_keys].any(), "gradients by fully masked queries"


CALLS = [  # a layer, masks, axes of the inputs
    *((name, MASKS[mask], {}) for name, mask in pair_layers_and_masks()),
    ("dot_product", MASKS["none"], {"num_keys": T + 2}),
    ("multi_head", MASKS["causal"], {"num_keys": T + 2}),
    ("multi_head", {"attention_mask": HEAD_MASK}, {}),
    ("dot_product", MASKS["pairs"], {"leading": (4, 3, B)}),
    ("dot_product", {"valid_lens": np.array([[[[0, 3]] * 3] * 4])}, {"leading": (1, 4, 3, B)}),
]


@pytest.mark.parametrize(("name", "masks", "axes"), CALLS)
def test_fused_form_equals_the_plain_form(name, masks, axes, calls, monkeypatch):
    assert_equal_to_plain_form(calls, monkeypatch, build_layer(name), draw_inputs(**axes), masks)
    if "use_causal_mask" in masks and not axes:
        is_causal_only = len(masks) == 1
        assert calls[0]["is_causal"] is is_causal_only
        assert (calls[0]["attn_mask"] is None) is is_causal_only


def test_unsupported_calls_do_not_use_the_fused_form(calls):
    class ShiftedScore(DotProductAttention):
        def score(self, queries, keys):
            return super().score(queries, keys) + 1.0

    layer = DotProductAttention(0.5, seed=1)
    layer(*draw_inputs(), training=True)
    layer(*draw_inputs(), return_attention_scores=True)
    DotProductAttention(normalizer="sigmoid")(*draw_inputs())
    ShiftedScore()(*draw_inputs())
    MultiHeadAttention(ShiftedScore(), 2)(*draw_inputs())
    DotProductAttention()(*draw_inputs(num_keys=0))
    DotProductAttention()(*draw_inputs()[:2], np.ones((B, T, D + 1)))
    with use_evaluator(Evaluator()):
        layer(*draw_inputs())
    assert not calls
    layer(*draw_inputs(), training=False)
    assert len(calls) == 1


@pytest.mark.parametrize("mask", ["causal", "causal_and_lengths", "causal_window"])
def test_large_numbers_in_later_keys_have_no_effect(mask, calls):
    layer, inputs, large_inputs = build_layer("multi_head"), draw_inputs(), draw_inputs()
    for array in large_inputs[1:]:
        array[:, -1] = 1e30
    expected, output = (to_numpy(layer(*x, **MASKS[mask])) for x in (inputs, large_inputs))
    assert_identical(output[:, : T - 1], expected[:, : T - 1])
    assert calls


@pytest.mark.parametrize(
    ("dtype", "mask"),
    [("float16", "none"), ("bfloat16", "lengths"), ("float16", "causal_and_lengths"), ("bfloat16", "bias_and_lengths")],
)
def test_fused_form_keeps_precision_in_half_dtypes(dtype, mask, calls, monkeypatch):
    layer, inputs = DotProductAttention(scale=1.0, dtype=dtype), draw_inputs()
    inputs[0] *= 30  # scores of several hundreds: nearly all weight belongs to the largest score
    output = to_numpy(layer(*inputs, **MASKS[mask]))
    rounded_inputs = [ops.cast(ops.cast(array, dtype), "float32") for array in inputs]
    expected = to_numpy(
        run_in_plain_form(monkeypatch, lambda: DotProductAttention(scale=1.0)(*rounded_inputs, **MASKS[mask]))
    )
    assert str(output.dtype) == dtype
    assert_close(output, expected.astype(output.dtype), dtype)
    assert calls


def test_large_scores_of_masked_keys_have_no_effect_in_float16(calls):
    inputs = draw_inputs()
    inputs[0][:] = 1
    inputs[1][:, -1] = 6e3  # a score of 48,000
    layer = DotProductAttention(scale=1.0, dtype="float16")
    mask = np.tril(np.ones((T, T), bool))
    output = to_numpy(layer(*inputs, attention_mask=mask))
    expected = to_numpy(layer(inputs[0], *(array[:, :-1] for array in inputs[1:]), attention_mask=mask[:, :-1]))
    assert_identical(output[:, :-1], expected[:, :-1])
    assert calls


def test_fully_masked_blocks_of_keys_are_not_fully_masked_queries(calls, monkeypatch):
    """The first masked keys of a query fill whole blocks of a kernel; later keys are unmasked."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(1, 1200, D)).astype("float32") for _ in range(3)]
    assert_equal_to_plain_form(calls, monkeypatch, DotProductAttention(), inputs, {"window": (2, 1)})


@pytest.mark.parametrize("mask", ["lengths", "causal"])
def test_fused_form_has_second_gradients(mask, calls, monkeypatch):
    layer, masks = build_layer("multi_head"), MASKS[mask]
    compute_first_gradients = compute_gradients(lambda *tensors: ops.sum(layer(*tensors, **masks) ** 2), 3)
    compute_second_gradients = compute_gradients(
        lambda *tensors: sum(ops.sum(ops.sin(gradient)) for gradient in compute_first_gradients(*tensors)), 3
    )
    tensors = [ops.convert_to_tensor(array) for array in draw_inputs()]
    actual = [to_numpy(gradient) for gradient in compute_second_gradients(*tensors)]
    assert calls
    expected = [to_numpy(gradient) for gradient in run_in_plain_form(monkeypatch, compute_second_gradients, *tensors)]
    assert_results_close(actual, expected)
    assert all(np.any(gradient != 0) for gradient in actual)


def test_function_transforms_of_torch_use_the_plain_form(calls):
    import torch

    layer, tensors = DotProductAttention(), [torch.tensor(array) for array in draw_inputs()]

    def loss(*tensors):
        return torch.sum(layer(*tensors, **MASKS["lengths"]) ** 2)

    gradients = torch.func.grad(loss, argnums=(0, 1, 2))(*tensors)
    assert not calls
    assert_results_close(map(to_numpy, gradients), map(to_numpy, compute_gradients(loss, 3)(*tensors)))
    assert calls


def test_fused_form_accepts_precomputed_keys_and_self_attention(calls, monkeypatch):
    layer, (queries, keys, values) = build_layer("multi_head"), draw_inputs()
    x = ops.convert_to_tensor(queries)
    for inputs in ((queries, layer.precompute(keys), values), (x, x, x)):
        for masks in ({}, MASKS["lengths"]):
            num_calls, output = len(calls), to_numpy(layer(*inputs, **masks))
            assert len(calls) == num_calls + 1
            expected = run_in_plain_form(monkeypatch, lambda inputs=inputs, masks=masks: layer(*inputs, **masks))
            assert_close(output, to_numpy(expected), "float32")
