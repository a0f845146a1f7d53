"""Convert calls of built-in Keras attention layers to composites.

A composite gives zeros where a query is without keys. What Keras gives there is put in around it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from keras import ops

from keras_attn._maths.scores import additive_scores, dot_product_scores
from keras_attn._pooling.attention_call import AttentionCall
from keras_attn._pooling.composite import Composite, composite_of
from keras_attn._pooling.scoring import DOT_PRODUCT, Scoring
from keras_attn._states.cache import Keys
from keras_attn._types import Heads, Masks, Pairs

from .._private_api.builtin_attention import AS_COMPUTED, MEAN, BuiltinAttentionCall

Evaluate = Callable[[Composite, bool], tuple[Any, Any]]


def evaluate_builtin_attention(attention: BuiltinAttentionCall, evaluate: Evaluate) -> tuple[Any, Any]:
    """Return output and weights of a call, shaped as its layer does, by the evaluator of a composite."""
    output, weights = evaluate(composite_of_builtin(attention), attention.returns_weights)
    output = _split_heads(output, attention)
    if attention.masked_row_output == MEAN:
        return _mean_without_keys(output, attention), weights
    if attention.masked_row_output == AS_COMPUTED:
        return _computed_without_keys(output, weights, attention)
    return _zero_masked_queries(output, weights, attention)


def composite_of_builtin(attention: BuiltinAttentionCall) -> Composite:
    """Return the attention of a call, but for its masked queries."""
    radius = attention.masks.window_radius
    masks = Masks(attention_mask=attention.masks.pairs, keys_mask=attention.masks.keys)
    pairs = Pairs(attention.masks.causal, None if radius is None else (radius, radius))
    queries, keys, values = (_merge_heads(tensor) for tensor in (attention.queries, attention.keys, attention.values))
    call = AttentionCall(queries, Keys(keys), values, masks, pairs, heads=_heads(attention))
    return composite_of(call, _scoring(attention, queries, keys), attention.layer)


def _heads(attention: BuiltinAttentionCall) -> Heads | None:
    return Heads(attention.queries.shape[2], attention.keys.shape[2]) if len(attention.queries.shape) == 4 else None


def _scoring(attention: BuiltinAttentionCall, queries: Any, keys: Any) -> Scoring:
    tensors = {"queries": queries, "keys": keys}
    if attention.w_v is None:
        score = partial(dot_product_scores, scale=attention.scale)
        return Scoring(DOT_PRODUCT, score, tensors, {"scale": attention.scale})
    return Scoring("additive", _additive, {**tensors, "w_v": attention.w_v}, {})


def _additive(queries: Any, keys: Any, w_v: Any) -> Any:
    return additive_scores(queries, keys, lambda features: ops.matmul(features, w_v))


def _merge_heads(sequence: Any) -> Any:
    """The heads of a sequence side by side on its last axis."""
    if len(sequence.shape) == 3:
        return sequence
    batch, length, heads, size = ops.shape(sequence)
    return ops.reshape(sequence, (batch, length, heads * size))


def _split_heads(output: Any, attention: BuiltinAttentionCall) -> Any:
    """The output with an axis of heads where the layer has one."""
    if len(attention.queries.shape) == 3:
        return output
    batch, length, heads, _ = ops.shape(attention.queries)
    return ops.reshape(output, (batch, length, heads, attention.values.shape[-1]))


def _mean_without_keys(output: Any, attention: BuiltinAttentionCall) -> Any:
    sees = _has_visible_key(attention)
    if sees is None:
        return output
    mean = ops.mean(attention.values, axis=1, keepdims=True)
    times = attention.queries.shape[2] // attention.values.shape[2]
    mean = mean if times == 1 else ops.repeat(mean, times, axis=2)
    return ops.where(ops.expand_dims(ops.swapaxes(sees, 1, 2), -1), output, mean)


def _zero_masked_queries(output: Any, weights: Any, attention: BuiltinAttentionCall) -> tuple[Any, Any]:
    """Zeros in output and weights of queries that are masked."""
    mask = attention.masks.queries
    if mask is None:
        return output, weights
    output = ops.where(mask[:, :, None, None], output, 0.0)
    return output, None if weights is None else ops.where(mask[:, None, :, None], weights, 0.0)


def _computed_without_keys(output: Any, weights: Any, attention: BuiltinAttentionCall) -> tuple[Any, Any]:
    """What the layer itself computes if some query lacks keys, which depends on how large its scores are."""
    mask = attention.masks.queries
    if mask is not None:
        output = ops.where(mask[:, :, None], output, 0.0)  # here the weights stay
    if attention.masks.keys is None:
        return output, weights
    sees = _has_visible_key_by_position(attention)
    own = attention.original
    if weights is None:
        return tf.cond(tf.reduce_all(sees), lambda: output, lambda: own()[0]), None
    return tuple(tf.cond(tf.reduce_all(sees), lambda: (output, weights), own))


def _has_visible_key(attention: BuiltinAttentionCall) -> Any:
    """Which queries see a key: booleans that broadcast to `(B, H, Tq)`, or None where all do."""
    masks = attention.masks
    if masks.pairs is not None and tuple(masks.pairs.shape[1:3]) != (1, 1):
        return ops.any(attention.combined_mask, axis=-1)
    sees = None
    if masks.keys is not None or masks.pairs is not None or masks.window_radius is not None:
        sees = _has_visible_key_by_position(attention)[:, None]
    if masks.queries is None:
        return sees
    queries = masks.queries[:, None]
    return queries if sees is None else ops.logical_and(sees, queries)


def _has_visible_key_by_position(attention: BuiltinAttentionCall) -> Any:
    """Which queries see a key by masks of keys and the order: booleans that broadcast to `(B, Tq)`.

    The keys up to each position are counted, so that no mask of all pairs is made.
    """
    masks, radius = attention.masks, attention.masks.window_radius
    num_queries, num_keys = ops.shape(attention.queries)[1], ops.shape(attention.keys)[1]
    seen = ops.ones((1, num_keys), "bool")
    for mask in (masks.keys, None if masks.pairs is None else masks.pairs[:, 0, 0]):
        seen = seen if mask is None else ops.logical_and(seen, mask)
    if not masks.causal and radius is None:
        return ops.any(seen, axis=-1, keepdims=True)
    counts = ops.pad(ops.cumsum(ops.cast(seen, "int32"), axis=-1), ((0, 0), (1, 0)))
    position = ops.arange(num_queries, dtype="int32")
    behind = position + (0 if masks.causal else radius or 0) + 1
    upto = ops.take(counts, ops.minimum(behind, num_keys), axis=-1)
    if radius is None:
        return ops.greater(upto, 0)
    before = ops.take(counts, ops.clip(position - radius, 0, num_keys), axis=-1)
    return ops.greater(upto, before)
