"""Additive attention, one example at a time, in query blocks.

A block of n queries holds n H Tk U features (`MAX_BLOCK_FEATURES` at most, so that each product stays in the cache), or
a quarter of them as quotients without tanh (`additive_without_tanh.py`). The overflow guard is checked for each
example, over its unmasked keys, so that one example with large scores does not slow down the others. In shapes, U is
padded to full groups of units, and n is the block size.
"""

from dataclasses import replace

from ..._onnx.lazy_values import Outputs, Value, if_else, op, reshape
from ..._tracing.attention_calls import TracedCall
from .. import additive_without_tanh as without_tanh
from ..block_split import split_queries
from ..body_inputs import BodyInputs
from ..example_blocks import scan_blocks, unfold_scores
from ..heads import UNBATCHED_AXIS_ORDER, fold_packed_query_groups, split_heads
from ..key_ranges import ScoreFunction, key_ranges_differ
from ..masks import Masks
from ..per_example import SplitExample, scan_examples

MAX_BLOCK_FEATURES = 5 * 2**20  # the quotients, a quarter of them, then take 5 MB in float32
MAX_BLOCK_QUERIES = 2**20  # more than any request has: the bound of features alone decides
MIN_BLOCK_QUERIES = 8  # with fewer, preparing the keys for each block takes longer than the products


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of an additive call and, if returned, its weights."""
    call, queries, keys, values = inputs.call, inputs.queries, inputs.keys, inputs.values
    # Key ranges exclude keys behind a length or a causal mask. Inputs under other masks may be anything, and must not
    # decide by the guard how the rest is computed
    if call.has_key_mask or call.has_attention_mask or call.has_query_lengths or call.window[0] is not None:
        masks = Masks(inputs)
        queries, keys, values = masks.zero_fully_masked_queries(), masks.zero_masked(keys), masks.zero_masked(values)
    padded_units = without_tanh.count_padded_units(call)
    features_per_query = inputs.Tk * (call.num_heads * padded_units)
    split = split_queries(inputs, features_per_query, MAX_BLOCK_FEATURES, MAX_BLOCK_QUERIES, MIN_BLOCK_QUERIES)
    blocks = split.split(inputs, without_tanh.pad_units(call, queries, call.num_heads))
    blocks = fold_packed_query_groups(call, blocks, padded_units, (inputs.B, split.num_blocks), split.block_size)
    query_terms = _compute_terms(call, blocks)
    keys = without_tanh.pad_units(call, keys, call.num_kv_heads)
    return scan_examples(replace(inputs, keys=keys, values=values), split, _attend_example, blocks, query_terms)


def _compute_terms(call: TracedCall, projected: Value) -> Value:
    """Return the terms (..., groups of all heads, subsets) of projected queries or keys (..., Hkv U)."""
    groups = call.num_kv_heads * without_tanh.count_unit_groups(call)
    units = reshape(projected, op.Shape(projected, end=-1), groups, without_tanh.UNIT_GROUP_SIZE)
    return without_tanh.compute_terms(units)


def _attend_example(example: SplitExample, queries: Value, query_terms: Value) -> Outputs:
    """Return the output and weights of an example: `queries` (blocks, H / Hkv n, Hkv U), `query_terms` their terms."""
    keys = op.Slice(example.inputs.keys, [0], op.Max(example.end_key, [1]), [0])
    guard = without_tanh.is_accurate_without_tanh(example.inputs, queries, keys)
    w_v = without_tanh.pad_unit_weights(example.inputs)
    outputs = _attend_without_tanh(example, query_terms, keys, w_v)
    return if_else(guard, outputs, _attend_with_tanh(example, queries, keys, w_v))


def _attend_without_tanh(example: SplitExample, query_terms: Value, keys: Value, w_v: Value) -> Outputs:
    """Return the outputs for terms (blocks, H / Hkv n, groups of all heads, subsets), keys (Tk, Hkv U), w_v (U, 1)."""
    # The groups are the batch axis of the products, though they come after the queries in `query_terms`. The terms of
    # keys are (groups, subsets, Tk): as (Tk, groups, subsets), the terms of one group lie on as many pages of memory as
    # there are keys, and the products took twice as long at 4,096 keys.
    call, head_factors = example.inputs.call, without_tanh.compute_factors(w_v)
    factors = op.Tile(head_factors, [call.num_kv_heads, 1]) if call.num_kv_heads > 1 else head_factors
    denominators = op.Transpose(_compute_terms(call, keys), perm=[1, 2, 0])
    numerators = denominators * op.Unsqueeze(factors, [2])

    def slice_keys(key_terms: Value, start: Value, end: Value) -> Value:
        # Without such masks, all blocks read the keys up to the length of the example
        has_ranges = key_ranges_differ(call) or call.has_key_mask
        return op.Slice(key_terms, start, end, [2]) if has_ranges else key_terms

    def build_score_function(block_terms: Value) -> ScoreFunction:
        def compute_scores(start: Value, end: Value) -> Value:
            rows = op.Transpose(block_terms, perm=[1, 0, 2])  # onnxruntime fuses the transpose with each product
            numerator, denominator = (
                op.MatMul(rows, slice_keys(terms, start, end)) for terms in (numerators, denominators)
            )
            return _sum_quotients(example, numerator / denominator)

        return compute_scores

    return scan_blocks(example, build_score_function, query_terms, zero_masked_values=False)


def _sum_quotients(example: SplitExample, quotients: Value) -> Value:
    """Return the scores (H, n, keys), without heads (n, keys), of quotients (groups of all heads, H / Hkv n, keys)."""
    call = example.inputs.call
    heads = [] if call.heads is None else [call.num_kv_heads]
    sums = without_tanh.sum_unit_groups(quotients, without_tanh.count_unit_groups(call), *heads)
    return unfold_scores(example, reshape(sums, *heads, op.Shape(quotients, start=1)))


def _attend_with_tanh(example: SplitExample, queries: Value, keys: Value, w_v: Value) -> Outputs:
    """Return the outputs for queries (blocks, H / Hkv n, Hkv U), keys (Tk, Hkv U) and weights (U, 1)."""
    call = example.inputs.call
    heads, padded_units = call.num_kv_heads, without_tanh.count_padded_units(call)
    axis = 0 if call.heads is None else 1
    keys = keys if call.heads is None else split_heads(keys, heads, padded_units, UNBATCHED_AXIS_ORDER)

    def build_score_function(block: Value) -> ScoreFunction:
        rows = block if call.heads is None else split_heads(block, heads, padded_units, UNBATCHED_AXIS_ORDER)

        def compute_scores(start: Value, end: Value) -> Value:
            block_keys = op.Slice(keys, start, end, [axis])
            features = op.Tanh(op.Unsqueeze(rows, [axis + 1]) + op.Unsqueeze(block_keys, [axis]))
            return unfold_scores(example, op.Squeeze(op.MatMul(features, w_v), [-1]))

        return compute_scores

    return scan_blocks(example, build_score_function, queries, zero_masked_values=False)
