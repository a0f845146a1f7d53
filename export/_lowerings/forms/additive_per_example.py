"""Additive attention, one example at a time, in query blocks."""

from dataclasses import replace

from ..._onnx.lazy_values import Outputs, Value, branch, op, reshape
from ..._tracing.attention_calls import Call
from ..additive_without_tanh import (
    GROUP,
    factors,
    filled,
    filled_weights,
    full_units,
    groups,
    in_range,
    sums_of_groups,
    terms,
)
from ..block_split import cut
from ..body_inputs import Given
from ..example_blocks import over_blocks, scores_of_heads
from ..heads import OF_EXAMPLE, joined_groups, split_heads
from ..key_ranges import Scores, ranges_differ
from ..masks import Masks
from ..per_example import Example, over_examples

FEATURES = 5 * 2**20  # elements of the (rows, Tk, U) features in a block; each product then takes 5 MB
MOST_ROWS = 2**20  # queries in a block
LEAST_ROWS = 8  # with fewer, what is made ready of the keys for each block takes longer than the products


def body(given: Given) -> Outputs:
    """Return the outputs of an additive call."""
    call, queries, keys, values = given.call, given.queries, given.keys, given.values
    if not _reads_all(call):  # what no pair reads may be anything, and must not decide the form
        masks = Masks(given)
        queries, keys, values = masks.hidden_queries(), masks.hidden(keys), masks.hidden(values)
    blocks = cut(given, given.Tk * (call.num_heads * full_units(call)), FEATURES, MOST_ROWS, LEAST_ROWS)
    cut_queries = blocks.of(given, filled(call, queries, call.num_heads))
    cut_queries = joined_groups(call, cut_queries, full_units(call), (given.N, blocks.blocks), blocks.rows)
    query_terms = _terms(call, cut_queries)
    read = replace(given, keys=filled(call, keys, call.num_kv_heads), values=values)
    return over_examples(read, blocks, _example, cut_queries, query_terms)


def _terms(call: Call, projected: Value) -> Value:
    """Return the terms (..., groups of all heads, subsets) of projected queries or keys (..., heads U)."""
    return terms(reshape(projected, op.Shape(projected, end=-1), call.num_kv_heads * groups(call), GROUP))


def _reads_all(call: Call) -> bool:
    """Tell whether no pair but those in the ranges of keys of the examples and blocks is kept out."""
    return not (call.has_keys_mask or call.has_pair_mask or call.has_query_lengths or call.band[0] is not None)


def _example(example: Example, queries: Value, query_terms: Value) -> Outputs:
    keys = op.Slice(example.given.keys, [0], op.Max(example.end, [1]), [0])
    guard, w_v = in_range(example.given, queries, keys), filled_weights(example.given)
    return branch(guard, _in_groups(example, query_terms, keys, w_v), _by_tanh(example, queries, keys, w_v))


def _in_groups(example: Example, query_terms: Value, keys: Value, w_v: Value) -> Outputs:
    # The groups are the batch, though they come after the queries. The terms of keys stand in rows, group after group:
    # side by side, those of one lie on as many pages of memory as there are keys, and took twice as long at 4,096.
    call, of_head = example.given.call, factors(w_v)
    of_heads = op.Tile(of_head, [call.num_kv_heads, 1]) if call.num_kv_heads > 1 else of_head
    denominators = op.Transpose(_terms(call, keys), perm=[1, 2, 0])
    numerators = denominators * op.Unsqueeze(of_heads, [2])

    def some(key_terms: Value, start: Value, end: Value) -> Value:
        has_ranges = ranges_differ(call) or call.has_keys_mask
        return op.Slice(key_terms, start, end, [2]) if has_ranges else key_terms  # up to the length of the example

    def scores_of(of_block: Value) -> Scores:
        def scores(start: Value, end: Value) -> Value:
            rows = op.Transpose(of_block, perm=[1, 0, 2])  # onnxruntime makes one operator of it and each product
            upper, lower = (op.MatMul(rows, some(each, start, end)) for each in (numerators, denominators))
            return _scores(example, upper / lower)

        return scores

    return over_blocks(example, scores_of, query_terms, hides=False)


def _scores(example: Example, quotients: Value) -> Value:
    """Return the scores of quotients (groups of units of all heads, rows, keys)."""
    call = example.given.call
    heads = [] if call.heads is None else [call.num_kv_heads]
    sums = sums_of_groups(quotients, groups(call), *heads)
    return scores_of_heads(example, reshape(sums, *heads, op.Shape(quotients, start=1)))


def _by_tanh(example: Example, queries: Value, keys: Value, w_v: Value) -> Outputs:
    call = example.given.call
    heads, size = call.num_kv_heads, full_units(call)
    axis = 0 if call.heads is None else 1
    keys = keys if call.heads is None else split_heads(keys, heads, size, OF_EXAMPLE)

    def scores_of(of_block: Value) -> Scores:
        rows = of_block if call.heads is None else split_heads(of_block, heads, size, OF_EXAMPLE)

        def scores(start: Value, end: Value) -> Value:
            some_keys = op.Slice(keys, start, end, [axis])
            features = op.Tanh(op.Unsqueeze(rows, [axis + 1]) + op.Unsqueeze(some_keys, [axis]))
            return scores_of_heads(example, op.Squeeze(op.MatMul(features, w_v), [-1]))

        return scores

    return over_blocks(example, scores_of, queries, hides=False)
