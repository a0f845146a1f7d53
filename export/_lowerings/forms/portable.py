"""Lowering `portable`: attention in standard operators of opset 18.

A masked pair gets a bias of FLOAT32_MIN or less, so that its weight exp(score + bias - largest score) is exactly 0. The
bias is selected over the mask, which has axes of length 1 if it is the same for all queries or heads; a selection over
all scores took as long as the softmax. A bias does not remove NaN, so keys and values that are masked for all queries
are set to zero first. If scores may be as large as the bias, or have an added bias of the caller's, which may be
anything at masked pairs, they are replaced by FLOAT32_MIN instead. In shapes, scores and weights are (B, H, Tq, Tk),
without heads (B, Tq, Tk).
"""

from dataclasses import replace

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE, DOT_PRODUCT

from ..._onnx.lazy_values import FLOAT32_MIN, Outputs, Value, constant, op
from ..body_inputs import BodyInputs
from ..forms import distances
from ..heads import merge_heads, repeat_kv_heads, split_heads
from ..masks import Masks, is_masked, may_have_fully_masked_rows
from ..nan_fallback import attend_with_nan_fallback
from ..normalizers import normalize_scores

LOWEST_OPSET = 18


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a call and, if returned, its weights (B, H, Tq, Tk)."""
    masks = Masks(inputs)
    scores = compute_scores(inputs, masks.zero_masked(inputs.keys))
    return attend_from_scores(masks, scores, masks.zero_masked(inputs.values))


def compute_scores(inputs: BodyInputs, keys: Value) -> Value:
    """Return the scores (B, H, Tq, Tk) of the queries and keys (B, Tk, Hkv D), all pairs at once."""
    return _SCORE_FUNCTIONS[inputs.call.score](inputs, keys)


def attend_from_scores(masks: Masks, scores: Value, values: Value) -> Outputs:
    """Return the outputs for scores (B, H, Tq, Tk) and values (B, Tk, Hkv Dv), zero if masked for all queries."""
    return masks.zero_fully_masked_rows(_attend(masks, scores, values))


def build_body_with_nan_fallback(inputs: BodyInputs) -> Outputs:
    """Return the outputs of `build_body`, with masked keys and values set to zero only if something leaked."""
    call, masks = inputs.call, Masks(inputs)
    if not (may_have_fully_masked_rows(call) and call.normalizer == SOFTMAX) or call.mask_differs_by_query:
        return build_body(inputs)
    is_additive = call.score == ADDITIVE
    if is_additive:
        # onnxruntime prepacks a constant weight for the first product, but not for the product in the branch, so that
        # the last bits of the two would differ. The selection keeps the weight from being a constant.
        inputs = replace(inputs, w_v=op.Where(masks.every_row_has_key, inputs.w_v, inputs.w_v))

    def attend(keys: Value, values: Value) -> Outputs:
        return _attend(masks, compute_scores(inputs, keys), values, replaces_masked_scores=not is_additive)

    return attend_with_nan_fallback(masks, attend)


def _attend(masks: Masks, scores: Value, values: Value, *, replaces_masked_scores: bool = False) -> Outputs:
    """Return the outputs for scores (B, H, Tq, Tk) and values (B, Tk, Hkv Dv), without zeros in fully masked rows."""
    inputs, call = masks.inputs, masks.inputs.call
    if call.has_bias:
        scores = scores + (op.Squeeze(inputs.bias, [1]) if call.heads is None else inputs.bias)
    is_replaced = replaces_masked_scores or call.has_bias
    weights = _compute_weights(masks, scores, is_replaced) if is_masked(call) else normalize_scores(call, scores, None)
    return (_pool_values(inputs, weights, values), weights)[: len(call.outputs)]


def _compute_weights(masks: Masks, scores: Value, replaces_masked_scores: bool) -> Value:
    """Return the weights (B, H, Tq, Tk) of scores of the same shape."""
    call, mask = masks.inputs.call, masks.attention_mask
    if call.heads is None:
        mask = op.Squeeze(mask, [1]) if call.mask_differs_by_query else op.Unsqueeze(masks.key_mask, [1])
    is_mask_as_large_as_scores = call.mask_differs_by_query and call.heads is None
    needs_exact_zeros = call.mask_differs_by_query and call.normalizer != SOFTMAX
    if replaces_masked_scores or is_mask_as_large_as_scores or needs_exact_zeros:
        masked_scores = op.Where(mask, scores, FLOAT32_MIN)
    else:
        # Keys that are masked for some queries only are not zeros: their scores may be as large as -FLOAT32_MIN
        lowest = constant(FLOAT32_MIN)
        masked_scores = scores + op.Where(mask, 0.0, lowest + lowest if call.mask_differs_by_query else lowest)
    return normalize_scores(call, masked_scores, mask)


def _pool_values(inputs: BodyInputs, weights: Value, values: Value) -> Value:
    """Return the output (B, Tq, H Dv) of weights (B, H, Tq, Tk) and values (B, Tk, Hkv Dv)."""
    call = inputs.call
    if call.heads is None:
        return op.MatMul(weights, values)
    heads = repeat_kv_heads(call, split_heads(values, call.num_kv_heads, call.value_size), inputs.B)
    return merge_heads(op.MatMul(weights, heads), call.num_heads * call.value_size)


def _score_dot_product(inputs: BodyInputs, keys: Value) -> Value:
    """Return `scale q k`, (B, H, Tq, Tk), for keys (B, Tk, Hkv D)."""
    call, scaled = inputs.call, inputs.queries * inputs.call.options["scale"]
    if call.heads is None:
        return op.MatMul(scaled, op.Transpose(keys, perm=[0, 2, 1]))
    queries = split_heads(scaled, call.num_heads, call.key_size)
    key_heads = split_heads(keys, call.num_kv_heads, call.key_size, order=(0, 2, 3, 1))
    return op.MatMul(queries, repeat_kv_heads(call, key_heads, inputs.B))


def _score_additive(inputs: BodyInputs, keys: Value) -> Value:
    """Return `tanh(q + k) w_v`, (B, H, Tq, Tk), for keys (B, Tk, Hkv U)."""
    call, queries = inputs.call, inputs.queries
    if call.heads is not None:
        queries = split_heads(queries, call.num_heads, call.key_size)
        keys = repeat_kv_heads(call, split_heads(keys, call.num_kv_heads, call.key_size), inputs.B)
    features = op.Tanh(op.Unsqueeze(queries, [-2]) + op.Unsqueeze(keys, [-3]))
    return op.Squeeze(op.MatMul(features, inputs.w_v), [-1])


def _score_distance(inputs: BodyInputs, keys: Value) -> Value:
    """Return the scores (B, Tq, Tk) of a Gaussian kernel, for keys (B, Tk, D)."""
    queries, keys = (op.Transpose(tensor, perm=[0, 2, 1]) for tensor in (inputs.queries, keys))
    return distances.compute_scores(inputs, queries, keys)


_SCORE_FUNCTIONS = {DOT_PRODUCT: _score_dot_product, ADDITIVE: _score_additive, DISTANCE: _score_distance}
