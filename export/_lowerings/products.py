"""Scaled dot products in blocks of queries: for masks of pairs, causal ones, and where the weights are returned."""

from __future__ import annotations

from .blocks import over_blocks, scores_of_heads
from .cut import cut
from .examples import Example, over_examples
from .given import Given
from .heads import split_groups, split_heads
from .operators import Outputs, Value, op
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
        rows = some_queries if call.heads is None else split_groups(call, some_queries, call.key_size)

        def scores(start: Value, end: Value) -> Value:
            return scores_of_heads(example, op.MatMul(rows, op.Slice(keys, start, end, [axis])))

        return scores

    return over_blocks(example, scores_of, queries)
