"""`LocationSensitiveAttention`: scores by the formula, previous weights of masked keys, and gradients."""

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


def build_layer(kernel_size=3, **options):
    layer = LocationSensitiveAttention(U, FILTERS, kernel_size, **options)
    layer.build((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))
    draw_weights(layer)
    return layer


def draw_inputs(seed=0):
    rng, shapes = np.random.default_rng(seed), ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def draw_previous_weights(*axes, seed=5):
    """Return previous weights (B, *axes, Tk) with sums of 1."""
    weights = np.random.default_rng(seed).random((B, *axes, Tk)).astype("float32")
    return weights / weights.sum(-1, keepdims=True)


def compute_scores_in_loops(layer, queries, keys, previous):
    """Compute the formula of the layer's docstring for previous weights (B, Tq, Tk), zero-padded at both ends."""
    W_q, W_k, F, W_f, w_v = (to_float64(getattr(layer, name).kernel) for name in ("W_q", "W_k", "F", "W_f", "w_v"))
    bias, size = to_float64(layer.W_q.bias), layer.kernel_size
    scores = np.zeros((B, queries.shape[1], Tk))
    for b, i, j in np.ndindex(scores.shape):
        feature = np.zeros(FILTERS)
        for r in range(size):
            position = j + r - (size - 1) // 2
            if 0 <= position < Tk:
                feature += F[r] * previous[b, i, position]
        preactivation = queries[b, i] @ W_q + keys[b, j] @ W_k + feature @ W_f + bias
        scores[b, i, j] = np.tanh(preactivation) @ w_v[:, 0]
    return scores


@pytest.mark.parametrize(("kernel_size", "axes"), [(1, (1,)), (2, ()), (4, (Tq,)), (9, (1,))])
def test_scores_equal_the_formula(kernel_size, axes):
    layer, (queries, keys, values), previous = build_layer(kernel_size), draw_inputs(), draw_previous_weights(*axes)
    output, weights = layer(queries, keys, values, previous_weights=previous, return_attention_scores=True)
    previous = np.broadcast_to(previous if axes else previous[:, None], (B, Tq, Tk))
    expected = reference.masked_softmax(compute_scores_in_loops(layer, queries, keys, previous))
    assert_close(to_numpy(weights), expected, "float32")
    assert_close(to_numpy(output), expected @ values, "float32")


def test_layer_without_previous_weights_equals_additive_attention_with_a_bias():
    layer, inputs, lengths = build_layer(), draw_inputs(), np.array([2, 5])
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


MASKS = {  # options, and the mask (B, Tq, Tk) or (B, 1, Tk) that they describe
    "lengths": ({"valid_lens": np.array([3, 4])}, np.arange(Tk) < np.array([[[3]], [[4]]])),
    "keys_mask": ({"keys_mask": np.arange(Tk) != np.array([[1], [4]])}, np.arange(Tk) != np.array([[[1]], [[4]]])),
    "by_query": (
        {"valid_lens": np.array([[1, 3, 5], [4, 2, 3]])},
        np.arange(Tk) < np.array([[1, 3, 5], [4, 2, 3]])[..., None],
    ),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("axes", "poison"), [((), np.nan), ((), 7.0), ((Tq,), np.inf)])
def test_previous_weights_of_masked_keys_are_zeros(mask, axes, poison):
    layer, inputs, (options, mask) = build_layer(4), draw_inputs(), MASKS[mask]
    previous = draw_previous_weights(*axes)
    previous_per_query = np.broadcast_to(previous if axes else previous[:, None], (B, Tq, Tk))
    mask = np.broadcast_to(mask, (B, Tq, Tk))
    # Weights (B, Tk) of all queries are ignored only if a key is masked for all queries.
    poisoned_weights = np.where(mask if axes else mask.any(1), previous, np.float32(poison))
    _, weights = layer(*inputs, **options, previous_weights=poisoned_weights, return_attention_scores=True)
    scores = compute_scores_in_loops(layer, *inputs[:2], np.where(mask, previous_per_query, 0))
    assert_close(to_numpy(weights), reference.masked_softmax(scores, mask=mask), "float32")


def test_nan_in_padding_does_not_change_gradients():
    layer, (queries, keys, values), lengths = build_layer(), draw_inputs(), np.array([3, 4])
    is_padding = np.arange(Tk) >= lengths[:, None]
    previous = draw_previous_weights(Tq)

    def loss(queries, keys, values, previous):
        return ops.sum(layer(queries, keys, values, lengths, previous_weights=previous) ** 2)

    program = compute_gradients(loss, 4, layer.trainable_variables)

    def compute_with_padding(fill):
        filled_arrays = [np.where(is_padding[..., None], np.float32(fill), array) for array in (keys, values)]
        filled_arrays.append(np.where(is_padding[:, None], np.float32(fill), previous))
        return [to_numpy(gradient) for gradient in program(*map(ops.convert_to_tensor, (queries, *filled_arrays)))]

    expected = compute_with_padding(0.0)
    for gradient, expected_gradient in zip(compute_with_padding(np.nan), expected, strict=True):
        assert_identical(gradient, expected_gradient)
    assert all(np.any(gradient != 0) for gradient in expected)


@pytest.mark.parametrize("previous", [np.ones((B, Tk + 1)), np.ones((B, 2, Tk)), np.ones((B, Tk), "int32")])
def test_previous_weights_of_another_shape_or_dtype_are_rejected(previous):
    symbolic_arrays = [keras.KerasTensor(array.shape, array.dtype.name) for array in (*draw_inputs(), previous)]
    for *inputs, weights in ([*draw_inputs(), previous], symbolic_arrays):
        with pytest.raises(ValueError, match=r"`previous_weights` must be floats of shape B \+ \(Tk,\).*Received: "):
            build_layer()(*inputs, previous_weights=weights)
