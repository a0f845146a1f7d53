"""Scaled dot products in blocks of queries: for masks of pairs, causal ones, and where the weights are returned."""

from __future__ import annotations

from .blocks import heads_of_groups, over_blocks
from .cut import cut
from .examples import Example, over_examples
from .given import Given
from .heads import OF_EXAMPLE, heads_per_key, split_heads
from .operators import Outputs, Value, op, reshape
from .ranges import Scores

SCORES = 2**19  # numbers in the scores of a block, over all heads: 2 MB
ROWS = 128  # queries in a block: with more, more scores are computed that a causal mask or a window keeps out


def body(given: Given) -> Outputs:
    """Return the outputs of a call."""
    blocks = cut(given, keys_of_block(given) * given.call.num_heads, SCORES, ROWS)
    return over_examples(given, blocks, _example, blocks.of(given, given.queries * given.call.options["scale"]))


def keys_of_block(given: Given) -> Value:
    """Return how many keys a block of queries may read."""
    left, right = given.call.band
    return given.Tk if left is None or right is None else op.Min(given.Tk, [left + right + ROWS])


def _example(example: Example, queries: Value) -> Outputs:
    call = example.given.call
    if call.heads is None:
        keys, axis = op.Transpose(example.given.keys, perm=[1, 0]), 1
    else:
        keys, axis = split_heads(example.given.keys, call.num_kv_heads, call.key_size, order=(1, 2, 0)), 2

    def scores_of(some_queries: Value) -> Scores:
        rows = _rows_of_groups(example, some_queries)

        def scores(start: Value, end: Value) -> Value:
            return heads_of_groups(example, op.MatMul(rows, op.Slice(keys, start, end, [axis])))

        return scores

    return over_blocks(example, scores_of, queries)


def _rows_of_groups(example: Example, queries: Value) -> Value:
    """Return the queries (rows, H D) of a block as (G, H / G rows, D): heads that share keys are rows of one."""
    call = example.given.call
    groups, times, size = call.num_kv_heads, heads_per_key(call), call.key_size
    if call.heads is None:
        return queries
    if times == 1:
        return split_heads(queries, groups, size, OF_EXAMPLE)
    return reshape(op.Transpose(reshape(queries, 0, groups, times, size), perm=[1, 2, 0, 3]), groups, -1, size)
