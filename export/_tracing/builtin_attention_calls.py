"""Convert calls of built-in Keras attention layers to composites, with Keras's results for fully masked queries."""

# A composite returns zeros for a fully masked query. Keras returns the mean of all values, zeros, or a result that
# depends on the rounding of scores (`BuiltinAttentionCall.masked_row_output`). These rows are replaced around the
# composite, so that no lowering has to support them.

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from keras import ops

from keras_attn._maths.scores import additive_scores, dot_product_scores
from keras_attn._pooling.attention_call import AttentionCall
from keras_attn._pooling.composite import Composite, make_composite
from keras_attn._pooling.scoring import DOT_PRODUCT, Scoring
from keras_attn._states.cache import KeyInput
from keras_attn._types import BandMask, Heads, Masks

from .._private_api.builtin_attention import AS_COMPUTED, MEAN, BuiltinAttentionCall

Evaluate = Callable[[Composite, bool], tuple[Any, Any]]


def evaluate_builtin_attention(attention: BuiltinAttentionCall, evaluate: Evaluate) -> tuple[Any, Any]:
    """Return output and weights of a call in the shapes of its layer, computed by the evaluator of a composite."""
    output, weights = evaluate(build_composite(attention), attention.returns_weights)
    output = _split_heads(output, attention)
    if attention.masked_row_output == MEAN:
        return _fill_masked_rows_with_mean(output, attention), weights
    if attention.masked_row_output == AS_COMPUTED:
        return _fill_masked_rows_as_keras(output, weights, attention)
    return _zero_masked_queries(output, weights, attention)


def build_composite(attention: BuiltinAttentionCall) -> Composite:
    """Return the composite of a call, without its query mask."""
    radius = attention.masks.window_radius
    masks = Masks(attention_mask=attention.masks.attention_mask, keys_mask=attention.masks.key_mask)
    pairs = BandMask(attention.masks.causal, None if radius is None else (radius, radius))
    queries, keys, values = (_merge_heads(tensor) for tensor in (attention.queries, attention.keys, attention.values))
    call = AttentionCall(queries, KeyInput(keys), values, masks, pairs, heads=_build_heads(attention))
    return make_composite(call, _build_scoring(attention, queries, keys), attention.layer)


def _build_heads(attention: BuiltinAttentionCall) -> Heads | None:
    return Heads(attention.queries.shape[2], attention.keys.shape[2]) if len(attention.queries.shape) == 4 else None


def _build_scoring(attention: BuiltinAttentionCall, queries: Any, keys: Any) -> Scoring:
    tensors = {"queries": queries, "keys": keys}
    if attention.w_v is None:
        score = partial(dot_product_scores, scale=attention.scale)
        return Scoring(DOT_PRODUCT, score, tensors, {"scale": attention.scale})
    return Scoring("additive", _score_additive, {**tensors, "w_v": attention.w_v}, {})


def _score_additive(queries: Any, keys: Any, w_v: Any) -> Any:
    return additive_scores(queries, keys, lambda features: ops.matmul(features, w_v))


def _merge_heads(sequence: Any) -> Any:
    """Reshape (B, T, H, D) to (B, T, H * D); a sequence without heads is returned unchanged."""
    if len(sequence.shape) == 3:
        return sequence
    batch, length, heads, size = ops.shape(sequence)
    return ops.reshape(sequence, (batch, length, heads * size))


def _split_heads(output: Any, attention: BuiltinAttentionCall) -> Any:
    """Reshape an output (B, Tq, H * Dv) to (B, Tq, H, Dv) if the layer has heads."""
    if len(attention.queries.shape) == 3:
        return output
    batch, length, heads, _ = ops.shape(attention.queries)
    return ops.reshape(output, (batch, length, heads, attention.values.shape[-1]))


def _fill_masked_rows_with_mean(output: Any, attention: BuiltinAttentionCall) -> Any:
    """Return the output (B, Tq, H, Dv) with the mean of all values in fully masked rows."""
    has_key = _has_unmasked_key(attention)
    if has_key is None:
        return output
    mean = ops.mean(attention.values, axis=1, keepdims=True)
    group_size = attention.queries.shape[2] // attention.values.shape[2]
    mean = mean if group_size == 1 else ops.repeat(mean, group_size, axis=2)
    return ops.where(ops.expand_dims(ops.swapaxes(has_key, 1, 2), -1), output, mean)


def _zero_masked_queries(output: Any, weights: Any, attention: BuiltinAttentionCall) -> tuple[Any, Any]:
    """Zero output (B, Tq, H, Dv) and weights (B, H, Tq, Tk) of masked queries."""
    mask = attention.masks.query_mask
    if mask is None:
        return output, weights
    output = ops.where(mask[:, :, None, None], output, 0.0)
    return output, None if weights is None else ops.where(mask[:, None, :, None], weights, 0.0)


def _fill_masked_rows_as_keras(output: Any, weights: Any, attention: BuiltinAttentionCall) -> tuple[Any, Any]:
    """Return the layer's own output (B, Tq, Dv) and weights if any query is fully masked."""
    mask = attention.masks.query_mask
    if mask is not None:
        output = ops.where(mask[:, :, None], output, 0.0)  # Keras does not zero the weights
    if attention.masks.key_mask is None:
        return output, weights
    has_key = _has_unmasked_key_in_window(attention)
    compute_original = attention.original
    if weights is None:
        return tf.cond(tf.reduce_all(has_key), lambda: output, lambda: compute_original()[0]), None
    return tuple(tf.cond(tf.reduce_all(has_key), lambda: (output, weights), compute_original))


def _has_unmasked_key(attention: BuiltinAttentionCall) -> Any:
    """Return booleans that broadcast to (B, H, Tq), True for a query with an unmasked key; None if all have one."""
    masks = attention.masks
    if masks.attention_mask is not None and tuple(masks.attention_mask.shape[1:3]) != (1, 1):
        return ops.any(attention.combined_mask, axis=-1)
    has_key = None
    if masks.key_mask is not None or masks.attention_mask is not None or masks.window_radius is not None:
        has_key = _has_unmasked_key_in_window(attention)[:, None]
    if masks.query_mask is None:
        return has_key
    queries = masks.query_mask[:, None]
    return queries if has_key is None else ops.logical_and(has_key, queries)


def _has_unmasked_key_in_window(attention: BuiltinAttentionCall) -> Any:
    """Return booleans that broadcast to (B, Tq), True for a query with an unmasked key by key and band masks."""
    # With c[j] the number of unmasked keys before position j, query i has c[end] - c[start] unmasked keys, where
    # [start, end) is its window. This takes O(Tq + Tk) memory; an attention mask would take O(Tq * Tk).
    masks, radius = attention.masks, attention.masks.window_radius
    num_queries, num_keys = ops.shape(attention.queries)[1], ops.shape(attention.keys)[1]
    key_mask = ops.ones((1, num_keys), "bool")
    for mask in (masks.key_mask, None if masks.attention_mask is None else masks.attention_mask[:, 0, 0]):
        key_mask = key_mask if mask is None else ops.logical_and(key_mask, mask)
    if not masks.causal and radius is None:
        return ops.any(key_mask, axis=-1, keepdims=True)
    counts = ops.pad(ops.cumsum(ops.cast(key_mask, "int32"), axis=-1), ((0, 0), (1, 0)))
    positions = ops.arange(num_queries, dtype="int32")
    window_ends = positions + (0 if masks.causal else radius or 0) + 1
    counts_at_end = ops.take(counts, ops.minimum(window_ends, num_keys), axis=-1)
    if radius is None:
        return ops.greater(counts_at_end, 0)
    counts_at_start = ops.take(counts, ops.clip(positions - radius, 0, num_keys), axis=-1)
    return ops.greater(counts_at_end, counts_at_start)
