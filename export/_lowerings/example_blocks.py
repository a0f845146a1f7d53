"""Loop (`Scan`) over the query blocks of one example.

A block reads the keys from the first to the last that its queries may see, as far as lengths, a mask of keys and the
order of positions tell. Among their scores masks select, and a value that no query of the block sees becomes zeros.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._onnx.lazy_values import Outputs, Value, op, scan, vector
from .heads import OF_EXAMPLE, groups_of_heads, heads_of_groups, join_heads, split_heads
from .key_ranges import Block, Part, Scores, part_of
from .masks import may_lack_keys
from .normalizers import normalized
from .per_example import Example, pairwise_arguments


def over_blocks(
    example: Example, scores_of: Callable[[Value], Scores], queries: Value, *, hides: bool = True
) -> Outputs:
    """Return the output of an example, and its weights, by a `Scan` over its blocks.

    Args:
        example: The example.
        scores_of: Maps what a block has of `queries` to what gives its scores.
        queries: A tensor (blocks, rows, ...).
        hides: Whether a value that no query sees may be anything but finite.
    """
    given, call = example.given, example.given.call
    names = [*(["query_lengths"] if call.has_query_lengths else []), *pairwise_arguments(call)]
    values, axis = given.values, 0
    if call.heads is not None:
        values, axis = split_heads(values, call.num_kv_heads, call.value_size, OF_EXAMPLE), 1

    def step(some_queries: Value, row: Value, *parts: Value) -> Outputs:
        own: dict[str, Any] = dict(zip(names, parts, strict=True))
        block = Block(example, replace(given, **own), row)
        return _weighted(block, part_of(block, scores_of(some_queries), values, axis, hides=hides))

    axes_of_block = [axes - 1 for axes in given.axes]
    return scan(axes_of_block, step, queries, example.cut.first_rows, *(getattr(given, name) for name in names))


def scores_of_heads(example: Example, scores: Value) -> Value:
    """Return scores (H, rows, keys) of (G, H / G rows, keys)."""
    return heads_of_groups(example.given.call, scores, example.cut.rows, op.Shape(scores, start=-1))


def _weighted(block: Block, part: Part) -> Outputs:
    """Return what a block contributes to the outputs."""
    given, call = block.given, block.given.call
    weights = normalized(call, part.scores, part.pairs)
    pooled = op.MatMul(groups_of_heads(call, weights), part.values)
    output = heads_of_groups(call, pooled, -1, call.value_size)
    if may_lack_keys(call):
        output = op.Where(part.row_sees, output, 0.0)
    if call.heads is not None:
        output = join_heads(output, call.num_heads * call.value_size, OF_EXAMPLE)
    if not call.returns_weights:
        return (output,)
    if may_lack_keys(call):
        weights = op.Where(part.row_sees, weights, 0.0)
    keys, before = block.keys, [0] if call.heads is None else [0, 0]
    return output, op.Pad(weights, vector(*before, keys.start, *before, given.Tk - keys.end))
