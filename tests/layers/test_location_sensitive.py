"""Location-sensitive attention: what its scores read of the weights before, and what must not reach them."""

import keras
import numpy as np
import pytest
import reference
from backends import compute_gradients
from keras import ops
from layer_contract import draw_weights, to_float64, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention
from keras_attn._layers.location_sensitive import LocationSensitiveAttention

B, Tq, Tk, Dq, Dk, Dv, U, FILTERS = 2, 3, 5, 4, 7, 6, 8, 3


def made(size=3, **options):
    layer = LocationSensitiveAttention(U, FILTERS, size, **options)
    layer.build((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))
    draw_weights(layer)
    return layer


def inputs_of(queries=Tq, seed=0):
    random, sizes = np.random.default_rng(seed), ((queries, Dq), (Tk, Dk), (Tk, Dv))
    return [random.normal(size=(B, *size)).astype("float32") for size in sizes]


def weights_of(*axes, seed=5):
    weights = np.random.default_rng(seed).random((B, *axes, Tk)).astype("float32")
    return weights / weights.sum(-1, keepdims=True)


def scores_by_loops(layer, queries, keys, previous):
    """The formula of the docstring, for weights before (B, Tq, Tk), which are zero beyond the keys."""
    W_q, W_k, F, W_f, w_v = (to_float64(getattr(layer, name).kernel) for name in ("W_q", "W_k", "F", "W_f", "w_v"))
    bias, size = to_float64(layer.W_q.bias), layer.kernel_size
    scores = np.zeros((B, queries.shape[1], Tk))
    for b, i, j in np.ndindex(scores.shape):
        place = np.zeros(FILTERS)
        for r in range(size):
            at = j + r - (size - 1) // 2
            if 0 <= at < Tk:
                place += F[r] * previous[b, i, at]
        hidden = queries[b, i] @ W_q + keys[b, j] @ W_k + place @ W_f + bias
        scores[b, i, j] = np.tanh(hidden) @ w_v[:, 0]
    return scores


@pytest.mark.parametrize(("size", "axes"), [(1, (1,)), (2, ()), (4, (Tq,)), (9, (1,))])
def test_scores_equal_the_formula(size, axes):
    layer, (queries, keys, values), previous = made(size), inputs_of(), weights_of(*axes)
    output, weights = layer(queries, keys, values, previous_weights=previous, return_attention_scores=True)
    by_query = np.broadcast_to(previous if axes else previous[:, None], (B, Tq, Tk))
    expected = reference.masked_softmax(scores_by_loops(layer, queries, keys, by_query))
    assert_close(to_numpy(weights), expected, "float32")
    assert_close(to_numpy(output), expected @ values, "float32")


def test_without_previous_weights_it_equals_additive_attention_with_a_bias():
    layer, inputs, lengths = made(), inputs_of(), np.array([2, 5])
    additive = AdditiveAttention(U)
    additive.build(*(array.shape for array in inputs))
    for name in ("W_q", "W_k", "w_v"):
        getattr(additive, name).kernel.assign(getattr(layer, name).kernel)
    layer.W_q.bias.assign(np.zeros(U))
    expected = to_numpy(additive(*inputs, lengths))
    for options in ({}, {"previous_weights": np.zeros((B, Tk), "float32")}):
        assert_close(to_numpy(layer(*inputs, lengths, **options)), expected, "float32")
    layer.W_q.bias.assign(np.ones(U))
    assert not np.allclose(to_numpy(layer(*inputs, lengths)), expected, atol=1e-3)


MASKS = {
    "lengths": ({"valid_lens": np.array([3, 4])}, np.arange(Tk) < np.array([[[3]], [[4]]])),
    "keys_mask": ({"keys_mask": np.arange(Tk) != np.array([[1], [4]])}, np.arange(Tk) != np.array([[[1]], [[4]]])),
    "by_query": (
        {"valid_lens": np.array([[1, 3, 5], [4, 2, 3]])},
        np.arange(Tk) < np.array([[1, 3, 5], [4, 2, 3]])[..., None],
    ),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("axes", "poison"), [((), np.nan), ((), 7.0), ((Tq,), np.inf)])
def test_previous_weights_of_masked_keys_count_as_zero(mask, axes, poison):
    layer, inputs, (masks, seen) = made(4), inputs_of(), MASKS[mask]
    previous = np.broadcast_to(weights_of(*axes) if axes else weights_of()[:, None], (B, Tq, Tk))
    given = previous if axes else previous[:, 0]
    seen = np.broadcast_to(seen, (B, Tq, Tk))
    hidden = ~seen if axes else ~seen.any(1)  # of weights for all queries those that no query may see
    poisoned = np.where(hidden, np.float32(poison), given)
    _, weights = layer(*inputs, **masks, previous_weights=poisoned, return_attention_scores=True)
    expected = reference.masked_softmax(scores_by_loops(layer, *inputs[:2], np.where(seen, previous, 0)), mask=seen)
    assert_close(to_numpy(weights), expected, "float32")


def test_nan_in_padding_reaches_no_gradient():
    layer, (queries, keys, values), lengths = made(), inputs_of(), np.array([3, 4])
    padded = np.arange(Tk) >= lengths[:, None]
    previous = weights_of(Tq)

    def loss(queries, keys, values, previous):
        return ops.sum(layer(queries, keys, values, lengths, previous_weights=previous) ** 2)

    take = compute_gradients(loss, 4, layer.trainable_variables)
    found = []
    for poison in (0.0, np.nan):
        dirty = [np.where(padded[..., None], np.float32(poison), array) for array in (keys, values)]
        before = np.where(padded[:, None], np.float32(poison), previous)
        arrays = map(ops.convert_to_tensor, (queries, *dirty, before))
        found.append([to_numpy(gradient) for gradient in take(*arrays)])
    for clean, poisoned in zip(*found, strict=True):
        assert_identical(poisoned, clean)
    assert all(np.any(gradient != 0) for gradient in found[0])


@pytest.mark.parametrize("previous", [np.ones((B, Tk + 1)), np.ones((B, 2, Tk)), np.ones((B, Tk), "int32")])
def test_previous_weights_of_another_shape_or_dtype_are_refused(previous):
    symbols = [keras.KerasTensor(array.shape, array.dtype.name) for array in (*inputs_of(), previous)]
    for *inputs, weights in ([*inputs_of(), previous], symbols):
        with pytest.raises(ValueError, match=r"`previous_weights` must be floats of shape B \+ \(Tk,\).*Received: "):
            made()(*inputs, previous_weights=weights)
