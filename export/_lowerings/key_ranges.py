"""Range of keys that a query block reads, and the mask within it.

A block of the queries p .. p + n - 1, with the window (left, right) around each position, reads the keys

    [ max(first_key, p - left),  min(end_key, min(p + n, Tq) + right, largest query length in the block) )

All other keys are masked for all queries of the block: the example has unmasked keys from `first_key` up to `end_key`.
An empty range becomes one key, so that no operator reduces an empty axis; the fully masked rows become zeros. Under a
causal mask (left = None), query p attends to all keys before `unmasked_end` = p + right + 1, and so do later queries:
only later keys need a mask. In shapes, n is the block size and K the number of keys in a range.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT

from .._onnx.lazy_values import FLOAT32_MIN, Value, op
from .._tracing.attention_calls import TracedCall
from .body_inputs import MISSING_INPUT, BodyInputs, logical_and
from .masks import build_band_mask, may_have_fully_masked_rows
from .per_example import SplitExample

# Maps the first and the end key of a range, int64 (1,), to the scores of a block: (H, n, K), without heads (n, K)
ScoreFunction = Callable[[Value, Value], Value]


class KeyRange(NamedTuple):
    """Keys from `start` up to `end`, at least one; keys before `unmasked_end` need no mask. All int64 (1,)."""

    start: Value
    end: Value
    unmasked_end: Value = MISSING_INPUT


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """Block of queries of one example.

    Attributes:
        inputs: Inputs of the body for the block; query lengths, masks and biases have no axis of blocks.
        first_query_position: Position of the first query, int64 scalar.
    """

    example: SplitExample
    inputs: BodyInputs
    first_query_position: Value

    @cached_property
    def key_range(self) -> KeyRange:
        """Range of keys that the block reads."""
        return _compute_key_range(self)

    @cached_property
    def key_positions(self) -> Value:
        """Positions of the keys in the range, int64 (K,)."""
        return self.slice_key_positions(self.key_range.start, self.key_range.end)

    def slice_key_positions(self, start: Value, end: Value) -> Value:
        """Return the positions of the keys from `start` up to `end`, int64 (end - start,)."""
        return op.Slice(self.inputs.key_positions, start, end, [0])

    @cached_property
    def query_positions(self) -> Value:
        """Positions of the queries, int64 (n, 1)."""
        return op.Unsqueeze(self.example.block_split.query_offsets + self.first_query_position, [1])


class MaskedBlock(NamedTuple):
    """Masked scores of a block, and the values that their weights multiply."""

    scores: Value  # (H, n, K) or (n, K), `FLOAT32_MIN` at masked pairs
    mask: Value | None  # broadcasts to the scores, if needed
    values: Value  # (Hkv, K, Dv), without heads (K, Dv)
    # False for fully masked rows, booleans (H or 1, n or 1, 1), without heads (n or 1, 1)
    row_has_key: Value


def key_ranges_differ(call: TracedCall) -> bool:
    """Return True if the blocks of an example may read different ranges of keys."""
    return call.has_query_lengths or call.window != (None, None)


def _compute_key_range(block: QueryBlock) -> KeyRange:
    """Return the range of keys that a block reads, by the formula of the module."""
    example, inputs = block.example, block.inputs
    (left, right), start, end, unmasked_end = inputs.call.window, example.first_key, example.end_key, MISSING_INPUT
    first_query = op.Unsqueeze(block.first_query_position, [0])
    if right is not None:
        end = op.Min(op.Min(first_query + example.block_split.block_size, inputs.Tq) + right, end)
    if inputs.call.has_query_lengths:
        end = op.Min(end, op.ReduceMax(inputs.query_lengths, keepdims=1))
    if left is not None:
        start = op.Max(first_query - left, start)
    end = op.Max(end, [1])
    start = op.Min(start, end - 1)
    if has_unmasked_prefix(inputs.call) and right is not None:
        unmasked_end = op.Min(first_query + (right + 1), end)
        unmasked_end = op.Max(unmasked_end, start) if inputs.call.has_key_mask else unmasked_end
    return KeyRange(start, end, unmasked_end)


def has_unmasked_prefix(call: TracedCall) -> bool:
    """Return True if all queries of a block attend to all keys before `unmasked_end`."""
    # True of a causal mask, also with lengths, or with a key mask, which the scores then contain: see
    # `dot_product_blocks.py`. A selection over all scores takes half as long as the two products on one thread.
    left, right = call.window
    has_other_masks = call.has_query_lengths or call.has_attention_mask or call.has_bias
    is_softmax = (call.score, call.normalizer) == (DOT_PRODUCT, SOFTMAX)
    return left is None and right is not None and not has_other_masks and is_softmax


def mask_block_scores(
    block: QueryBlock, compute_scores: ScoreFunction, values: Value, key_axis: int, *, zero_masked_values: bool
) -> MaskedBlock:
    """Return the masked scores of a block, with its part of the values (Hkv, Tk, Dv), without heads (Tk, Dv).

    `key_axis` is the axis of the keys; `zero_masked_values` sets values that are masked for all queries to zero.
    """
    block_values = op.Slice(values, block.key_range.start, block.key_range.end, [key_axis])
    # An example without unmasked keys reads key 0 instead, which may lie in the window
    has_keys = block.example.end_key > 0
    if has_unmasked_prefix(block.inputs.call):
        return _mask_after_prefix(block, compute_scores, block_values, has_keys)
    block_scores = compute_scores(block.key_range.start, block.key_range.end)
    return _mask_all_scores(block, block_scores, block_values, has_keys, zero_masked_values=zero_masked_values)


def _mask_after_prefix(block: QueryBlock, scores: ScoreFunction, values: Value, has_keys: Value) -> MaskedBlock:
    """Return the scores (H, n, K) of a block under a causal mask; `values` (Hkv, K, Dv), `has_keys` booleans (1,)."""
    call, keys = block.inputs.call, block.key_range
    band_mask = build_band_mask(call, block.query_positions, block.slice_key_positions(keys.unmasked_end, keys.end))
    masked_end = op.Where(band_mask, scores(keys.unmasked_end, keys.end), FLOAT32_MIN)
    masked_scores = op.Concat(scores(keys.start, keys.unmasked_end), masked_end, axis=-1)
    if not call.has_key_mask:
        return MaskedBlock(masked_scores, None, values, op.Unsqueeze(has_keys, [1]))
    reaches_first_key = block.query_positions + (call.window[1] or 0) >= block.example.first_key
    return MaskedBlock(masked_scores, None, values, has_keys & reaches_first_key)


def _mask_all_scores(
    block: QueryBlock, scores: Value, values: Value, has_keys: Value, *, zero_masked_values: bool
) -> MaskedBlock:
    """Return scores (H, n, K) of a block under all masks; `values` (Hkv, K, Dv), `has_keys` booleans (1,)."""
    inputs, call = block.inputs, block.inputs.call
    if call.has_bias:
        scores = scores + _slice_keys(inputs.bias, block.key_range, call)
    masks = _compute_masks(block)
    if not masks:
        return MaskedBlock(scores, None, values, op.Unsqueeze(has_keys, [1]))
    mask = logical_and(masks)
    masked_scores = op.Where(mask, scores, FLOAT32_MIN)
    may_have_masked_rows = may_have_fully_masked_rows(call)
    row_has_key = inputs.reduce_any(mask, [-1], keepdims=True) & has_keys if may_have_masked_rows else MISSING_INPUT
    # With a window or query lengths only, some query of the block attends to each key of the range
    is_range_enough = len(masks) == 1 and not (call.has_key_mask or call.has_attention_mask)
    if zero_masked_values and not is_range_enough:
        axes_before_keys = [0, 1] if call.heads is not None and call.has_attention_mask else [0]
        is_attended = inputs.reduce_any(mask, axes_before_keys)
        values = op.Where(op.Unsqueeze(is_attended, [1]), values, 0.0)
    return MaskedBlock(masked_scores, mask, values, row_has_key)


def _compute_masks(block: QueryBlock) -> list[Value]:
    """Return the masks of a block, each booleans (H or 1, n or 1, K) or (n or 1, K)."""
    inputs, call, keys, masks = block.inputs, block.inputs.call, block.key_range, []
    if call.window != (None, None):
        masks.append(build_band_mask(call, block.query_positions, block.key_positions))
    if call.has_query_lengths:
        masks.append(block.key_positions < op.Unsqueeze(inputs.query_lengths, [1]))
    if call.has_key_mask:
        masks.append(op.Unsqueeze(op.Slice(inputs.keys_mask, keys.start, keys.end, [0]), [0]))
    if call.has_attention_mask:
        masks.append(_slice_keys(inputs.mask, keys, call))
    return masks


def _slice_keys(pairwise: Value, keys: KeyRange, call: TracedCall) -> Value:
    """Return the range of keys of a mask or bias (H or 1, n, Tk): (H or 1, n, K), without heads (n, K)."""
    block_keys = op.Slice(pairwise, keys.start, keys.end, [2])
    return op.Squeeze(block_keys, [0]) if call.heads is None else block_keys
