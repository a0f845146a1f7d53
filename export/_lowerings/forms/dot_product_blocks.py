"""Dot-product attention, one example at a time, in query blocks.

A mask of keys beside a causal one is a number more in each key, by a one in each query: zero, or the lowest float32
where the others are zeros. The product adds it, so no score has to be looked at.
"""

from dataclasses import replace

from ..._onnx.lazy_values import LOWEST, Outputs, Value, op, vector
from ..block_split import cut
from ..body_inputs import Given
from ..example_blocks import over_blocks, scores_of_heads
from ..heads import pad, split_groups, split_heads
from ..key_ranges import Scores, has_edge
from ..per_example import Example, over_examples

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
    call, given = example.given.call, example.given
    in_keys = has_edge(call) and call.has_keys_mask
    if in_keys:
        seen = op.Unsqueeze(given.keys_mask, [1])
        keys, values = (op.Where(seen, each, 0.0) for each in (given.keys, given.values))
        given = replace(given, keys=keys, values=values)
        example = example._replace(given=given)
    if call.heads is None:
        keys, axis = op.Transpose(given.keys, perm=[1, 0]), 1
    else:
        keys, axis = split_heads(given.keys, call.num_kv_heads, call.key_size, order=(1, 2, 0)), 2
    if in_keys:
        bias = op.Expand(op.Where(given.keys_mask, 0.0, LOWEST), vector(*[call.num_kv_heads] * (axis - 1), 1, given.Tk))
        keys = op.Concat(keys, bias, axis=axis - 1)

    def scores_of(some_queries: Value) -> Scores:
        rows = some_queries if call.heads is None else split_groups(call, some_queries, call.key_size)
        rows = pad(rows, axis + 1, last=1, fill=1.0) if in_keys else rows

        def scores(start: Value, end: Value) -> Value:
            return scores_of_heads(example, op.MatMul(rows, op.Slice(keys, start, end, [axis])))

        return scores

    return over_blocks(example, scores_of, queries)
