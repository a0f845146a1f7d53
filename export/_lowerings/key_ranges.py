"""Range of keys that a query block reads, and the mask within it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT

from .._onnx.lazy_values import LOWEST, Value, op
from .._tracing.attention_calls import Call
from .body_inputs import ABSENT, Given, conjunction
from .masks import in_band, may_lack_keys
from .per_example import Example

Scores = Callable[[Value, Value], Value]  # of a range of keys: (H, rows, keys), without heads (rows, keys)


class Range(NamedTuple):
    """The keys of a block, one at least, from `start` up to `end`; up to `edge` all of its queries see them."""

    start: Value
    end: Value
    edge: Value = ABSENT


@dataclass(frozen=True, eq=False)
class Block:
    """A block of queries.

    Attributes:
        example: Its example.
        given: Its part of what that is given, without the axis of blocks.
        row: The number of its first query, a scalar.
    """

    example: Example
    given: Given
    row: Value

    @cached_property
    def keys(self) -> Range:
        """The range of the keys that it reads."""
        return _range_of(self)

    @cached_property
    def positions(self) -> Value:
        """The positions of these keys."""
        return self.positions_of(self.keys.start, self.keys.end)

    def positions_of(self, start: Value, end: Value) -> Value:
        """Return the positions of a range of keys."""
        return op.Slice(self.given.positions, start, end, [0])

    @cached_property
    def query_numbers(self) -> Value:
        """The numbers of its queries, (rows, 1)."""
        return op.Unsqueeze(self.example.cut.row_numbers + self.row, [1])


class Part(NamedTuple):
    """What a block makes weights of.

    Attributes:
        scores: Those of its range of keys, the lowest float32 where a pair takes no part.
        pairs: Which pairs take part; `None` where all do, or where it does not matter beside the scores.
        values: Of the range.
        row_sees: Whether a query sees a key, (H or 1, rows or 1, 1) or the last two of these axes.
    """

    scores: Value
    pairs: Value | None
    values: Value
    row_sees: Value


def ranges_differ(call: Call) -> bool:
    """Tell whether the blocks of an example may read keys of different ranges."""
    return call.has_query_lengths or call.band != (None, None)


def _range_of(block: Block) -> Range:
    example, given = block.example, block.given
    (left, right), start, end, edge = given.call.band, example.start, example.end, ABSENT
    row = op.Unsqueeze(block.row, [0])
    if right is not None:
        end = op.Min(op.Min(row + example.cut.rows, given.Tq) + right, end)
    if given.call.has_query_lengths:
        end = op.Min(end, op.ReduceMax(given.query_lengths, keepdims=1))
    if left is not None:
        start = op.Max(row - left, start)
    end = op.Max(end, [1])
    start = op.Min(start, end - 1)
    if has_edge(given.call) and right is not None:
        edge = op.Min(row + (right + 1), end)
        edge = op.Max(edge, start) if given.call.has_keys_mask else edge
    return Range(start, end, edge)


def has_edge(call: Call) -> bool:
    """Tell whether all queries of a block see its keys up to an edge, so that masks select among the others alone.

    They do under a causal mask, with lengths beside it or a mask of keys, which is then in the keys; see
    `dot_product_blocks.py`. To select among all scores takes half as long as the two products, on one thread.
    """
    left, right = call.band
    other = call.has_query_lengths or call.has_pair_mask or call.has_bias
    return left is None and right is not None and not other and (call.name, call.normalizer) == (DOT_PRODUCT, SOFTMAX)


def part_of(block: Block, scores: Scores, values: Value, axis: int, *, hides: bool) -> Part:
    """Return the masked scores and the values of a block.

    Args:
        block: The block.
        scores: Computes the scores of its queries and a range of keys.
        values: The values of the example.
        axis: The axis of the keys in the values.
        hides: Whether a value that no query of the block sees may be anything but finite.
    """
    some_values = op.Slice(values, block.keys.start, block.keys.end, [axis])
    has_keys = block.example.end > 0  # a key that stands in where no key takes part may lie in the band
    if has_edge(block.given.call):
        return _with_masked_edge(block, scores, some_values, has_keys)
    return _with_mask(block, scores(block.keys.start, block.keys.end), some_values, has_keys, hides=hides)


def _with_masked_edge(block: Block, scores: Scores, values: Value, has_keys: Value) -> Part:
    """Return the part of a block under a causal mask: a selection among the keys from the edge on alone."""
    call, keys = block.given.call, block.keys
    at_edge = in_band(call, block.query_numbers, block.positions_of(keys.edge, keys.end))
    masked_edge = op.Where(at_edge, scores(keys.edge, keys.end), LOWEST)
    masked = op.Concat(scores(keys.start, keys.edge), masked_edge, axis=-1)
    if not call.has_keys_mask:
        return Part(masked, None, values, op.Unsqueeze(has_keys, [1]))
    reaches_first = block.query_numbers + (call.band[1] or 0) >= block.example.start
    return Part(masked, None, values, has_keys & reaches_first)


def _with_mask(block: Block, scores: Value, values: Value, has_keys: Value, *, hides: bool) -> Part:
    """Return the part of a block under all its masks."""
    given, call = block.given, block.given.call
    if call.has_bias:
        scores = scores + _of_range(given.bias, block.keys, call)
    masks = _pairs(block)
    if not masks:
        return Part(scores, None, values, op.Unsqueeze(has_keys, [1]))
    pairs = conjunction(masks)
    masked = op.Where(pairs, scores, LOWEST)
    row_sees = given.any_of(pairs, [-1], keepdims=True) & has_keys if may_lack_keys(call) else ABSENT
    # by the order or lengths of queries alone, some query of the block sees each key of its range
    only_order = len(masks) == 1 and not (call.has_keys_mask or call.has_pair_mask)
    if hides and not only_order:
        axes_but_keys = [0, 1] if call.heads is not None and call.has_pair_mask else [0]
        is_seen = given.any_of(pairs, axes_but_keys)
        values = op.Where(op.Unsqueeze(is_seen, [1]), values, 0.0)
    return Part(masked, pairs, values, row_sees)


def _pairs(block: Block) -> list[Value]:
    """Return booleans, (H or 1, rows or 1, keys) or the last two of these axes, by each mask."""
    given, call, keys, parts = block.given, block.given.call, block.keys, []
    if call.band != (None, None):
        parts.append(in_band(call, block.query_numbers, block.positions))
    if call.has_query_lengths:
        parts.append(block.positions < op.Unsqueeze(given.query_lengths, [1]))
    if call.has_keys_mask:
        parts.append(op.Unsqueeze(op.Slice(given.keys_mask, keys.start, keys.end, [0]), [0]))
    if call.has_pair_mask:
        parts.append(_of_range(given.mask, keys, call))
    return parts


def _of_range(pairwise: Value, keys: Range, call: Call) -> Value:
    some = op.Slice(pairwise, keys.start, keys.end, [2])
    return op.Squeeze(some, [0]) if call.heads is None else some
