"""Loop (`Scan`) over the query blocks of one example.

A block attends to its range of keys (`key_ranges.py`). Masks select among the scores of the range, and values that are
masked for all queries of the block become zeros, as a weight of zero times NaN or infinity is NaN. In shapes, n is the
block size and K the number of keys in a range.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._onnx.lazy_values import Outputs, Value, concat_shape, op, scan
from .heads import UNBATCHED_ORDER, fold_query_groups, merge_heads, split_heads, unfold_query_groups
from .key_ranges import BlockScores, QueryBlock, ScoreFunction, mask_block_scores
from .masks import may_have_fully_masked_rows
from .normalizers import normalize_scores
from .per_example import Example, list_pairwise_inputs


def scan_blocks(
    example: Example, score_block: Callable[[Value], ScoreFunction], queries: Value, *, zero_masked_values: bool = True
) -> Outputs:
    """Return the output (blocks, n, H Dv) of an example, and its weights (blocks, H, n, Tk) or (blocks, n, Tk).

    `score_block` maps a block of `queries` (blocks, n, ...), or of features of queries, to its score function.
    """
    inputs, call = example.inputs, example.inputs.call
    names = [*(["query_lengths"] if call.has_query_lengths else []), *list_pairwise_inputs(call)]
    values, axis = inputs.values, 0
    if call.heads is not None:
        values, axis = split_heads(values, call.num_kv_heads, call.value_size, UNBATCHED_ORDER), 1

    def step(block_queries: Value, first_query: Value, *tensors: Value) -> Outputs:
        fields: dict[str, Any] = dict(zip(names, tensors, strict=True))
        block = QueryBlock(example, replace(inputs, **fields), first_query)
        scores = score_block(block_queries)
        masked = mask_block_scores(block, scores, values, axis, zero_masked_values=zero_masked_values)
        return _attend_block(block, masked)

    ranks = [rank - 1 for rank in inputs.output_ranks]
    return scan(ranks, step, queries, example.split.block_starts, *(getattr(inputs, name) for name in names))


def unfold_scores(example: Example, scores: Value) -> Value:
    """Reshape scores (Hkv, H / Hkv n, K) of folded query groups to (H, n, K)."""
    return unfold_query_groups(example.inputs.call, scores, example.split.block_size, op.Shape(scores, start=-1))


def _attend_block(block: QueryBlock, block_scores: BlockScores) -> Outputs:
    """Return the output (n, H Dv) of a block, and its weights (H, n, Tk) or (n, Tk), zero outside of the key range."""
    inputs, call = block.inputs, block.inputs.call
    weights = normalize_scores(call, block_scores.scores, block_scores.mask)
    pooled = op.MatMul(fold_query_groups(call, weights), block_scores.values)
    output = unfold_query_groups(call, pooled, -1, call.value_size)
    if may_have_fully_masked_rows(call):
        output = op.Where(block_scores.row_has_key, output, 0.0)
    if call.heads is not None:
        output = merge_heads(output, call.num_heads * call.value_size, UNBATCHED_ORDER)
    if not call.returns_weights:
        return (output,)
    if may_have_fully_masked_rows(call):
        weights = op.Where(block_scores.row_has_key, weights, 0.0)
    keys, no_pads = block.key_range, [0] if call.heads is None else [0, 0]
    return output, op.Pad(weights, concat_shape(*no_pads, keys.start, *no_pads, inputs.Tk - keys.end))
