"""Dot products pooled in one operation of torch: it is taken where it may be, and keeps what the layers promise."""

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
BY_HEAD = np.ones((B, 2, T, T), bool)  # a query may see no key in one head, and some in another
BY_HEAD[0, 0, 1], BY_HEAD[1, 1, :, 2:], BY_HEAD[1, :, 3] = False, False, False
pytestmark = run_only_on("torch", reason="the others have no such operation that is faster")


def in_turn(masks):
    """Heads with each of some masks, and each other layer with two."""
    masks = [*masks]
    pairs = [("multi_head", mask) for mask in masks]
    pairs += [(name, masks[(2 * n + m) % len(masks)]) for n, name in enumerate(LAYERS) for m in (0, 1)]
    return [*dict.fromkeys(pairs)]


@pytest.fixture
def calls(monkeypatch):
    """The options of each call of the operation so far."""
    import torch

    made = []
    operation = torch.nn.functional.scaled_dot_product_attention

    def counted(*tensors, **options):
        mask = options["attn_mask"]  # what the kernels of CUDA want of it
        if mask is not None:
            assert (mask.shape[-1], mask.stride(-1)) == (tensors[1].shape[-2], 1)
            assert mask.dtype in (torch.bool, tensors[0].dtype)
        made.append(options)
        return operation(*tensors, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    return made


def plainly(monkeypatch, function, *arguments):
    with monkeypatch.context() as patched:
        patched.setattr(attention_pooling, "can_use_sdpa", lambda *_: False)
        return function(*arguments)


def arrays(seed=0, leading=(B,), num_keys=T):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*leading, length, D)).astype("float32") for length in (T, num_keys, num_keys)]


def built(name, **options):
    layer = LAYERS[name](**options)
    layer.build(*(array.shape for array in arrays()))
    draw_weights(layer)
    for variable in layer.trainable_variables:
        variable.assign(0.3 * variable.value)  # scores of unit size, not of hundreds
    return layer


def assert_alike(actual, exact):
    """Each result within the rounding of float32, in units of its largest number.

    Or in units of 1: gradients by the bias of `W_k` are zero but for rounding.
    """
    for one, other in zip(actual, exact, strict=True):
        largest = max(np.abs(other).max(), 1.0)
        assert_close(one / largest, other / largest, tolerance=1e-5)


def results(layer, inputs, masks):
    """The output, and the gradients of a weighted sum of its squares by inputs and weights."""
    upstream = np.random.default_rng(9).normal(size=(*inputs[0].shape[:-1], D))

    def loss(*tensors):
        output = layer(*tensors, **masks)
        return ops.sum(ops.cast(upstream, output.dtype) * output * output)

    tensors = [ops.convert_to_tensor(array) for array in inputs]
    program = compute_gradients(loss, 3, layer.trainable_variables)
    return [to_numpy(tensor) for tensor in (layer(*tensors, **masks), *program(*tensors))]


def assert_as_plain(calls, monkeypatch, layer, inputs, masks):
    """The results, which are those of the plain form."""
    number, actual = len(calls), results(layer, inputs, masks)
    assert len(calls) > number
    number = len(calls)
    exact = plainly(monkeypatch, results, layer, inputs, masks)
    assert len(calls) == number
    assert_alike(actual, exact)
    rows = exact[0].any(-1)  # zeros where there is no key
    assert np.array_equal(actual[0].any(-1), rows)
    assert not actual[1][~rows].any(), "gradients by queries without keys"
    return actual


CALLS = [  # a layer, masks, axes of the inputs
    *((name, MASKS[mask], {}) for name, mask in in_turn(MASKS)),
    ("dot_product", MASKS["none"], {"num_keys": T + 2}),
    ("multi_head", MASKS["causal"], {"num_keys": T + 2}),
    ("multi_head", {"attention_mask": BY_HEAD}, {}),
    ("dot_product", MASKS["pairs"], {"leading": (4, 3, B)}),
    ("dot_product", {"valid_lens": np.array([[[[0, 3]] * 3] * 4])}, {"leading": (1, 4, 3, B)}),
]


@pytest.mark.parametrize(("name", "masks", "axes"), CALLS)
def test_fused_form_agrees_with_the_plain_form(name, masks, axes, calls, monkeypatch):
    assert_as_plain(calls, monkeypatch, built(name), arrays(**axes), masks)
    if "use_causal_mask" in masks and not axes:
        order_alone = len(masks) == 1
        assert calls[0]["is_causal"] is order_alone
        assert (calls[0]["attn_mask"] is None) is order_alone


def test_fused_form_is_not_taken_if_it_cannot_give_the_same(calls):
    class Shifted(DotProductAttention):
        def score(self, queries, keys):
            return super().score(queries, keys) + 1.0

    layer = DotProductAttention(0.5, seed=1)
    layer(*arrays(), training=True)
    layer(*arrays(), return_attention_scores=True)
    DotProductAttention(normalizer="sigmoid")(*arrays())
    Shifted()(*arrays())
    MultiHeadAttention(Shifted(), 2)(*arrays())
    DotProductAttention()(*arrays(num_keys=0))
    DotProductAttention()(*arrays()[:2], np.ones((B, T, D + 1)))
    with use_evaluator(Evaluator()):
        layer(*arrays())
    assert not calls
    layer(*arrays(), training=False)
    assert len(calls) == 1


@pytest.mark.parametrize("mask", ["causal", "causal_and_lengths", "causal_window"])
def test_finite_garbage_in_later_keys_does_not_leak(mask, calls):
    layer, clean, dirty = built("multi_head"), arrays(), arrays()
    for array in dirty[1:]:
        array[:, -1] = 1e30
    first, second = (to_numpy(layer(*each, **MASKS[mask])) for each in (clean, dirty))
    assert_identical(second[:, : T - 1], first[:, : T - 1])
    assert calls


@pytest.mark.parametrize(
    ("dtype", "mask"),
    [("float16", "none"), ("bfloat16", "lengths"), ("float16", "causal_and_lengths"), ("bfloat16", "bias_and_lengths")],
)
def test_fused_form_keeps_precision_in_half_dtypes(dtype, mask, calls, monkeypatch):
    layer, inputs = DotProductAttention(scale=1.0, dtype=dtype), arrays()
    inputs[0] *= 30  # of scores of some hundreds, which leave little but the largest
    output = to_numpy(layer(*inputs, **MASKS[mask]))
    rounded = [ops.cast(ops.cast(array, dtype), "float32") for array in inputs]
    exact = to_numpy(plainly(monkeypatch, lambda: DotProductAttention(scale=1.0)(*rounded, **MASKS[mask])))
    assert str(output.dtype) == dtype
    assert_close(output, exact.astype(output.dtype), dtype)
    assert calls


def test_large_scores_of_masked_keys_change_nothing_in_float16(calls):
    inputs = arrays()
    inputs[0][:] = 1
    inputs[1][:, -1] = 6e3  # a score of 48,000
    layer = DotProductAttention(scale=1.0, dtype="float16")
    mask = np.tril(np.ones((T, T), bool))
    output = to_numpy(layer(*inputs, attention_mask=mask))
    shorter = to_numpy(layer(inputs[0], *(array[:, :-1] for array in inputs[1:]), attention_mask=mask[:, :-1]))
    assert_identical(output[:, :-1], shorter[:, :-1])
    assert calls


def test_rows_whose_first_keys_are_all_masked_are_exact(calls, monkeypatch):
    """More of them than a kernel has in a block: no block may be taken for a row without keys."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(1, 1200, D)).astype("float32") for _ in range(3)]
    assert_as_plain(calls, monkeypatch, DotProductAttention(), inputs, {"window": (2, 1)})


@pytest.mark.parametrize("mask", ["lengths", "causal"])
def test_fused_form_has_second_gradients(mask, calls, monkeypatch):
    layer, masks = built("multi_head"), MASKS[mask]
    inner = compute_gradients(lambda *tensors: ops.sum(layer(*tensors, **masks) ** 2), 3)
    outer = compute_gradients(lambda *tensors: sum(ops.sum(ops.sin(each)) for each in inner(*tensors)), 3)
    tensors = [ops.convert_to_tensor(array) for array in arrays()]
    actual = [to_numpy(each) for each in outer(*tensors)]
    assert calls
    exact = [to_numpy(each) for each in plainly(monkeypatch, outer, *tensors)]
    assert_alike(actual, exact)
    assert all(np.any(each != 0) for each in actual)


def test_function_transforms_of_torch_take_the_plain_form(calls):
    import torch

    layer, tensors = DotProductAttention(), [torch.tensor(array) for array in arrays()]

    def loss(*tensors):
        return torch.sum(layer(*tensors, **MASKS["lengths"]) ** 2)

    transformed = torch.func.grad(loss, argnums=(0, 1, 2))(*tensors)
    assert not calls
    assert_alike(map(to_numpy, transformed), map(to_numpy, compute_gradients(loss, 3)(*tensors)))
    assert calls


def test_fused_form_takes_a_state_and_one_tensor_for_all(calls, monkeypatch):
    layer, (queries, keys, values) = built("multi_head"), arrays()
    tensor = ops.convert_to_tensor(queries)
    for given in ((queries, layer.precompute(keys), values), (tensor, tensor, tensor)):
        for masks in ({}, MASKS["lengths"]):
            number, output = len(calls), to_numpy(layer(*given, **masks))
            assert len(calls) == number + 1
            plain = plainly(monkeypatch, lambda given=given, masks=masks: layer(*given, **masks))
            assert_close(output, to_numpy(plain), "float32")
