"""Sliding-window attention: many query blocks in a step, each with its neighbouring keys.

With a window (left, right), the n = `BLOCK_QUERIES` queries p .. p + n - 1 of a block attend to keys from p - left to
p + n - 1 + right only: K = n + left + right keys. Column c of these is key p - left + c, and the query at offset r has
it in the window if r <= c <= r + left + right. This does not depend on p, so the window is one mask (n, K) for all
blocks. The share (n - 1) / K of the scores lies outside: small blocks compute less in vain, large ones have faster
products.

Masks are biases. Outside of the window the bias is 2 FLOAT32_MIN = -inf, since each row has columns in the window.
Masked keys and columns outside of the sequence get the finite FLOAT32_MIN: with -inf, a fully masked row would be NaN.
If NaN leaks all the same, or a score overflows, attention is computed again with zeroed keys and replaced scores
(`nan_fallback.py`).

Blocks of all examples and heads are one axis; a `Scan` reads chunks of at most `MAX_CHUNK_SCORES / (n K)` blocks.
In shapes, c is the number of blocks in a chunk.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT

from ..._onnx.lazy_values import FLOAT32_MIN, Outputs, Value, arange, concat_shape, constant, contrib, op, reshape, scan
from ..._tracing.attention_calls import TracedCall
from ..body_inputs import BodyInputs
from ..heads import get_query_group_size, merge_heads, split_heads
from ..masks import Masks
from ..nan_fallback import select_attempt

BLOCK_QUERIES = 64  # in a block: with fewer, products are slow; with more, more scores lie outside of the window
MAX_CHUNK_SCORES = 2**19  # computed at once: 2 MB in float32
MAX_WINDOW = 512  # left + right: wider windows pay only for sequences that are longer than golden cases


def supports(call: TracedCall) -> bool:
    """Return True for a softmax of dot products under a window with both limits, with or without key masks."""
    left, right = call.window
    return (
        left is not None
        and right is not None
        and left + right <= MAX_WINDOW
        and (call.score, call.normalizer) == (DOT_PRODUCT, SOFTMAX)
        and not (call.returns_weights or call.has_attention_mask or call.has_query_lengths or call.has_bias)
    )


def count_block_keys(call: TracedCall) -> int:
    """Return K, the number of keys that a block of queries reads."""
    return BLOCK_QUERIES + sum(_get_window(call))


def _get_window(call: TracedCall) -> tuple[int, int]:
    """Return the numbers of keys before and after its own position that a query attends to."""
    left, right = call.window
    return left or 0, right or 0  # `fits` excludes None


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a supported call."""
    call = inputs.call
    key_mask = Masks(inputs).key_mask if call.has_lengths or call.has_key_mask else None
    blocks, row_has_key = _split_into_blocks(inputs), _compute_row_has_key(inputs, key_mask)
    is_attended = inputs.key_positions < inputs.Tq + _get_window(call)[1]
    is_attended = op.Unsqueeze(is_attended if key_mask is None else key_mask & is_attended, [-1])
    zeroed_keys, zeroed_values = (op.Where(is_attended, tensor, 0.0) for tensor in (inputs.keys, inputs.values))
    # If |scale| <= 1/2, a score is at most -FLOAT32_MIN / 2, and with the bias no larger than any unmasked score
    replaces = key_mask is not None and abs(call.options["scale"]) > 0.5
    attempt = _attend(inputs, blocks, key_mask, inputs.keys, inputs.values, replaces_masked=replaces)
    retry = _attend(inputs, blocks, key_mask, zeroed_keys, zeroed_values, replaces_masked=True)
    zeroed_attempt, zeroed_retry = ((op.Where(row_has_key, output, 0.0),) for output in (attempt, retry))
    return select_attempt((attempt,), inputs.reduce_all(row_has_key), zeroed_attempt, zeroed_retry)


def _compute_row_has_key(inputs: BodyInputs, key_mask: Value | None) -> Value:
    """Return False for fully masked rows, booleans (B, Tq, 1), without key masks (Tq, 1); `key_mask` (B, Tk)."""
    left, right = _get_window(inputs.call)
    first_key = inputs.query_positions - left
    if key_mask is None:
        return op.Unsqueeze(first_key < inputs.Tk, [1])
    end_key = inputs.query_positions + (right + 1)
    start, end = (op.Clip(limit, 0, inputs.Tk_scalar) for limit in (first_key, end_key))
    # A window has an unmasked key if the number of unmasked keys before its end exceeds the number before its start
    counts = op.CumSum(op.Cast(key_mask, to=TensorProto.INT64), 1)
    # The pads are an array: onnx 1.19 applies pads in the attribute `value_ints` to another rank
    counts_before = op.Pad(counts, np.array([0, 1, 0, 0]))
    has_key = op.Gather(counts_before, start, axis=1) < op.Gather(counts_before, end, axis=1)
    return op.Unsqueeze(has_key, [-1])


class _Blocks(NamedTuple):
    """Query blocks of all examples and heads, in chunks; sizes are int64 (1,)."""

    queries: Value  # floats (chunks, c, n, D), padded with zeros
    # Index of each block, int64 (chunks, c); the padding of the last chunk repeats the last block
    indices: Value
    num_blocks: Value  # without the padding, a size
    blocks_per_head: Value  # of one example, a size
    queries_per_head: Value  # in these blocks, with padding, a size
    columns: Value  # 0 to K - 1, int64 (K,)
    window_mask: Value  # booleans (n, K)


def _split_into_blocks(inputs: BodyInputs) -> _Blocks:
    """Split the queries (B, Tq, H D) into blocks of one head and example each, and the blocks into chunks."""
    call, queries, rank = inputs.call, inputs.queries, 3
    if call.heads is not None:
        queries, rank = split_heads(queries, call.num_heads, call.key_size), 4
    blocks_per_head = (inputs.Tq + (BLOCK_QUERIES - 1)) // BLOCK_QUERIES
    queries_per_head = blocks_per_head * BLOCK_QUERIES
    padded = op.Pad(queries, concat_shape(*[0] * (2 * rank - 2), queries_per_head - inputs.Tq, 0))
    key_size = op.Shape(queries, start=-1)
    blocks = reshape(padded, -1, BLOCK_QUERIES, key_size)
    num_blocks = op.Shape(blocks, end=1)
    max_chunk = max(1, MAX_CHUNK_SCORES // (BLOCK_QUERIES * count_block_keys(call)))
    chunks = op.Max((num_blocks + (max_chunk - 1)) // max_chunk, [1])
    chunk_size = (num_blocks + chunks - 1) // chunks
    padded_blocks = chunks * chunk_size
    blocks = op.Pad(blocks, concat_shape(0, 0, 0, padded_blocks - num_blocks, 0, 0))
    columns, offsets = op.Range(0, count_block_keys(call), 1), op.Unsqueeze(op.Range(0, BLOCK_QUERIES, 1), [1])
    return _Blocks(
        queries=reshape(blocks, chunks, chunk_size, BLOCK_QUERIES, key_size, allowzero=1),
        indices=reshape(op.Min(arange(padded_blocks), num_blocks - 1), chunks, chunk_size, allowzero=1),
        num_blocks=num_blocks,
        blocks_per_head=blocks_per_head,
        queries_per_head=queries_per_head,
        columns=columns,
        window_mask=(columns >= offsets) & (columns <= offsets + sum(_get_window(call))),
    )


def _attend(
    inputs: BodyInputs, blocks: _Blocks, key_mask: Value | None, keys: Value, values: Value, *, replaces_masked: bool
) -> Value:
    """Return the output (B, Tq, H Dv) for a mask (B, Tk), keys (B, Tk, Hkv D) and values (B, Tk, Hkv Dv)."""
    call = inputs.call
    if call.heads is not None:
        keys = split_heads(keys, call.num_kv_heads, call.key_size)
        values = split_heads(values, call.num_kv_heads, call.value_size)
    value_size = op.Shape(values, start=-1)
    flat_keys, flat_values = reshape(keys, -1, op.Shape(keys, start=-1)), reshape(values, -1, value_size)
    flat_mask = None if key_mask is None else reshape(key_mask, -1)

    def step(queries: Value, indices: Value) -> Outputs:
        flat_indices, is_unmasked = _locate_keys(inputs, blocks, indices, flat_mask)
        chunk_keys, chunk_values = (op.Gather(tensor, flat_indices, axis=0) for tensor in (flat_keys, flat_values))
        scores = contrib.FusedMatMul(queries, chunk_keys, transB=1, alpha=call.options["scale"])
        if replaces_masked:
            masked_scores = op.Where(blocks.window_mask & is_unmasked, scores, FLOAT32_MIN)
        else:
            lowest = constant(FLOAT32_MIN)
            key_bias = op.Where(is_unmasked, 0.0, lowest)
            masked_scores = scores + key_bias + op.Where(blocks.window_mask, 0.0, lowest + lowest)
        return (op.MatMul(op.Softmax(masked_scores, axis=-1), chunk_values),)

    (pooled,) = scan([3], step, blocks.queries, blocks.indices)
    return _merge_blocks(inputs, blocks, reshape(pooled, -1, value_size), value_size)


def _locate_keys(inputs: BodyInputs, blocks: _Blocks, indices: Value, flat_mask: Value | None) -> tuple[Value, Value]:
    """Return the keys of the blocks `indices` (c,): indices into the flat keys (c, K), and a mask (c, 1, K).

    The mask is True inside the sequence if `flat_mask`, booleans (B Tk,), is.
    """
    call = inputs.call
    heads = indices // blocks.blocks_per_head
    first_keys = op.Mod(indices, blocks.blocks_per_head) * BLOCK_QUERIES - _get_window(call)[0]
    positions = op.Unsqueeze(first_keys, [1]) + blocks.columns
    clipped = op.Clip(positions, 0, inputs.Tk_scalar - 1)

    def flatten(sharing_heads: int) -> Value:
        # Of sequences that this number of query heads shares: H for masks of examples, H / Hkv for keys and values
        return clipped + op.Unsqueeze(heads // sharing_heads * inputs.Tk, [1])

    is_unmasked = op.Equal(positions, clipped)
    if flat_mask is not None:
        is_unmasked = op.Gather(flat_mask, flatten(call.num_heads), axis=0) & is_unmasked
    return flatten(get_query_group_size(call)), op.Unsqueeze(is_unmasked, [1])


def _merge_blocks(inputs: BodyInputs, blocks: _Blocks, rows: Value, value_size: Value) -> Value:
    """Return the output (B, Tq, H Dv) of the rows (padded blocks * n, Dv) of all blocks."""
    call = inputs.call
    rows = op.Slice(rows, [0], blocks.num_blocks * BLOCK_QUERIES, [0])
    if call.heads is None:
        return op.Slice(reshape(rows, inputs.B, blocks.queries_per_head, value_size), [0], inputs.Tq, [1])
    heads = reshape(rows, inputs.B, call.num_heads, blocks.queries_per_head, value_size)
    return merge_heads(op.Slice(heads, [0], inputs.Tq, [2]), call.num_heads * call.value_size)
