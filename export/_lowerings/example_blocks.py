"""Attention of one batch entry, called an example, by an ONNX `Scan` over blocks of its queries.

A block reads a range of keys. `key_ranges.py` computes and masks the scores of this range. If a key is masked for
all queries of a block, its value is set to zero, since a weight of zero times NaN or infinity would be NaN. In shapes,
n is the block size, K the number of keys in a range, and Hkv the number of heads of keys and values.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._onnx.lazy_values import Outputs, Value, concat_shape, op, scan
from .heads import UNBATCHED_AXIS_ORDER, fold_query_groups, merge_heads, split_heads, unfold_query_groups
from .key_ranges import MaskedBlock, QueryBlock, ScoreFunction, mask_block_scores
from .masks import may_have_fully_masked_rows
from .normalizers import normalize_scores
from .per_example import SplitExample, list_pairwise_inputs

# Takes the queries (n, ...) of a block, or terms computed from these. Returns the function that computes its scores.
BuildScoreFunction = Callable[[Value], ScoreFunction]


def scan_blocks(
    example: SplitExample, build_score_function: BuildScoreFunction, queries: Value, *, zero_masked_values: bool = True
) -> Outputs:
    """Return outputs (blocks, n, H Dv) and weights (blocks, [H,] n, Tk) for queries of shape (blocks, n, ...)."""
    inputs, call = example.inputs, example.inputs.call
    block_input_names = [*(["query_lengths"] if call.has_query_lengths else []), *list_pairwise_inputs(call)]
    values, key_axis = inputs.values, 0
    if call.heads is not None:
        values, key_axis = split_heads(values, call.num_kv_heads, call.value_size, UNBATCHED_AXIS_ORDER), 1

    def step(block_queries: Value, first_query_position: Value, *block_tensors: Value) -> Outputs:
        fields: dict[str, Any] = dict(zip(block_input_names, block_tensors, strict=True))
        block = QueryBlock(example, replace(inputs, **fields), first_query_position)
        compute_scores = build_score_function(block_queries)
        masked_block = mask_block_scores(block, compute_scores, values, key_axis, zero_masked_values=zero_masked_values)
        return _attend_block(block, masked_block)

    ranks, starts = [rank - 1 for rank in inputs.output_ranks], example.block_split.block_starts
    return scan(ranks, step, queries, starts, *(getattr(inputs, name) for name in block_input_names))


def unfold_scores(example: SplitExample, scores: Value) -> Value:
    """Reshape scores (Hkv, H n / Hkv, K) to (H, n, K). Their second axis has the rows of all heads of a query group."""
    return unfold_query_groups(example.inputs.call, scores, example.block_split.block_size, op.Shape(scores, start=-1))


def _attend_block(block: QueryBlock, masked_block: MaskedBlock) -> Outputs:
    """Return a block's output (n, H Dv) and weights (H, n, Tk) or (n, Tk). Weights outside of the key range are 0."""
    inputs, call = block.inputs, block.inputs.call
    weights = normalize_scores(call, masked_block.scores, masked_block.mask)
    pooled = op.MatMul(fold_query_groups(call, weights), masked_block.values)
    output = unfold_query_groups(call, pooled, -1, call.value_size)
    if may_have_fully_masked_rows(call):
        output = op.Where(masked_block.row_has_key, output, 0.0)
    if call.heads is not None:
        output = merge_heads(output, call.num_heads * call.value_size, UNBATCHED_AXIS_ORDER)
    if not call.returns_weights:
        return (output,)
    if may_have_fully_masked_rows(call):
        weights = op.Where(masked_block.row_has_key, weights, 0.0)
    key_range, no_pads = block.key_range, [0] if call.heads is None else [0, 0]
    return output, op.Pad(weights, concat_shape(*no_pads, key_range.start, *no_pads, inputs.Tk - key_range.end))
