"""Lowering `portable`: attention in standard operators of opset 18.

What masks keep out gets a bias of the lowest float32 or less, from a selection over the mask, which is small where it
is the same for all queries or heads; a selection over all scores took as long as the softmax. What the bias does to NaN
is undone before: keys and values that no query sees are zeros. Only scores with a bias of the caller's are selected:
that may be anything where a pair takes no part.
"""

from dataclasses import replace

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE, DOT_PRODUCT

from ..._onnx.lazy_values import LOWEST, Outputs, Value, constant, op
from ..body_inputs import Given
from ..forms import distances
from ..heads import join_heads, repeat_heads, split_heads
from ..masks import Masks, is_masked, may_lack_keys
from ..nan_fallback import tried
from ..normalizers import normalized

LOWEST_OPSET = 18


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    masks = Masks(given)
    return from_scores(masks, scores(given, masks.hidden(given.keys)), masks.hidden(given.values))


def scores(given: Given, keys: Value) -> Value:
    """Return the scores of the queries and some keys, all pairs at once."""
    return _SCORES[given.call.name](given, keys)


def from_scores(masks: Masks, scores: Value, values: Value) -> Outputs:
    """Return the outputs of a call whose values are zeros where no query sees them."""
    return masks.zeroed(_attention(masks, scores, values))


def quick_body(given: Given) -> Outputs:
    """Return the same, with keys and values hidden only where they leaked.

    A weight that onnxruntime knows before a run would be packed for the first product and not for the one in a branch,
    whose last bits would differ: a selection keeps it from that.
    """
    call, masks = given.call, Masks(given)
    if not (may_lack_keys(call) and call.normalizer == SOFTMAX) or call.differs_by_query:
        return body(given)
    is_additive = call.name == ADDITIVE
    unpacked = replace(given, w_v=op.Where(masks.all_see, given.w_v, given.w_v)) if is_additive else given
    return tried(masks, lambda keys, values: _attention(masks, scores(unpacked, keys), values, selects=not is_additive))


def _attention(masks: Masks, scores: Value, values: Value, *, selects: bool = False) -> Outputs:
    """Return the outputs.

    Args:
        masks: The masks of the call.
        scores: Those of all pairs.
        values: The values.
        selects: Whether scores of what masks keep out may be as large as the bias, which then is none: they are
            replaced.
    """
    given, call = masks.given, masks.given.call
    if call.has_bias:
        scores = scores + (op.Squeeze(given.bias, [1]) if call.heads is None else given.bias)
    weights = _weights(masks, scores, selects or call.has_bias) if is_masked(call) else normalized(call, scores, None)
    return (_pooled(given, weights, values), weights)[: len(call.outputs)]


def _weights(masks: Masks, scores: Value, selects: bool) -> Value:
    call, pairs = masks.given.call, masks.pairs
    if call.heads is None:
        pairs = op.Squeeze(pairs, [1]) if call.differs_by_query else op.Unsqueeze(masks.keys, [1])
    large_as_scores = call.differs_by_query and call.heads is None
    if selects or large_as_scores or (call.differs_by_query and call.normalizer != SOFTMAX):
        masked = op.Where(pairs, scores, LOWEST)
    else:
        # keys that only other queries see are not zeros: their scores may be as large as the lowest float32
        lowest = constant(LOWEST)
        masked = scores + op.Where(pairs, 0.0, lowest + lowest if call.differs_by_query else lowest)
    return normalized(call, masked, pairs)


def _pooled(given: Given, weights: Value, values: Value) -> Value:
    call = given.call
    if call.heads is None:
        return op.MatMul(weights, values)
    heads = repeat_heads(call, split_heads(values, call.num_kv_heads, call.value_size), given.N)
    return join_heads(op.MatMul(weights, heads), call.num_heads * call.value_size)


def _products(given: Given, keys: Value) -> Value:
    call, scaled = given.call, given.queries * given.call.options["scale"]
    if call.heads is None:
        return op.MatMul(scaled, op.Transpose(keys, perm=[0, 2, 1]))
    queries = split_heads(scaled, call.num_heads, call.key_size)
    of_keys = split_heads(keys, call.num_kv_heads, call.key_size, order=(0, 2, 3, 1))
    return op.MatMul(queries, repeat_heads(call, of_keys, given.N))


def _additive(given: Given, keys: Value) -> Value:
    call, queries = given.call, given.queries
    if call.heads is not None:
        queries = split_heads(queries, call.num_heads, call.key_size)
        keys = repeat_heads(call, split_heads(keys, call.num_kv_heads, call.key_size), given.N)
    features = op.Tanh(op.Unsqueeze(queries, [-2]) + op.Unsqueeze(keys, [-3]))
    return op.Squeeze(op.MatMul(features, given.w_v), [-1])


def _distances(given: Given, keys: Value) -> Value:
    queries, keys = (op.Transpose(each, perm=[0, 2, 1]) for each in (given.queries, keys))
    return distances.scores(given, queries, keys)


_SCORES = {DOT_PRODUCT: _products, ADDITIVE: _additive, DISTANCE: _distances}
