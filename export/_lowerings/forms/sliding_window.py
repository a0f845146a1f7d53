"""Sliding-window attention: many query blocks in a step, each with its neighbouring keys.

Every block has as many queries, and reads as many keys, so that what lies in the window is the same for all blocks: a
bias that is added. Places before the first key and after the last, and what masks of keys keep out, get another bias.
Where something leaked all the same, or overflowed, keys that no query sees are hidden and scores replaced; see
`nan_fallback.py`.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT

from ..._onnx.lazy_values import LOWEST, Outputs, Value, constant, contrib, op, reshape, scan, up_to, vector
from ..._tracing.attention_calls import Call
from ..body_inputs import Given
from ..heads import heads_per_key, join_heads, split_heads
from ..masks import Masks
from ..nan_fallback import first_or_again

QUERIES = 64  # in a block: with fewer the products are slow, with more they have keys that few of the queries see
SCORES = 2**19  # numbers in the scores that are computed at once: 2 MB
WIDEST = 512  # keys to both sides: with more, sequences must be longer than golden cases are for it to pay


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call: a window to both sides, and masks of keys beside it or none."""
    left, right = call.band
    return (
        left is not None
        and right is not None
        and left + right <= WIDEST
        and (call.name, call.normalizer) == (DOT_PRODUCT, SOFTMAX)
        and not (call.returns_weights or call.has_pair_mask or call.has_query_lengths or call.has_bias)
    )


def keys_of_block(call: Call) -> int:
    """Return how many keys each block of queries reads."""
    return QUERIES + sum(_reach(call))


def _reach(call: Call) -> tuple[int, int]:
    """Return how many keys before and after its own position a query sees."""
    left, right = call.band
    assert left is not None
    assert right is not None
    return left, right


def _has_masks(call: Call) -> bool:
    return call.has_lengths or call.has_keys_mask


def body(given: Given) -> Outputs:
    """Return the output of a call that fits."""
    seen = Masks(given).keys if _has_masks(given.call) else None
    blocks, row_sees = _blocks(given), _row_sees(given, seen)
    key_is_seen = op.Unsqueeze(_key_is_seen(given, seen), [-1])
    hidden_keys, hidden_values = (op.Where(key_is_seen, each, 0.0) for each in (given.keys, given.values))
    first = _attention(given, blocks, seen, given.keys, given.values, selects=_may_be_as_large(given.call))
    again = _attention(given, blocks, seen, hidden_keys, hidden_values, selects=True)
    first_zeroed, again_zeroed = ((op.Where(row_sees, each, 0.0),) for each in (first, again))
    return first_or_again((first,), given.all_of(row_sees), first_zeroed, again_zeroed)


def _may_be_as_large(call: Call) -> bool:
    """Tell whether scores may be as large as a finite bias, as they are unless the scale halves them.

    The bias of a window may be infinite: it is the same for all queries, and none lacks keys by it. That of masks is
    finite, so that none of what is finite but the scores of others is left.
    """
    return _has_masks(call) and abs(call.options["scale"]) > 0.5


def _row_sees(given: Given, seen: Value | None) -> Value:
    """Return whether a query sees a key, (N, Tq, 1) or (Tq, 1)."""
    left, right = _reach(given.call)
    first = given.query_numbers - left
    if seen is None:
        return op.Unsqueeze(first < given.Tk, [1])
    start, end = (op.Clip(each, 0, given.Tk_scalar) for each in (first, given.query_numbers + (right + 1)))
    counted = op.CumSum(op.Cast(seen, to=TensorProto.INT64), 1)
    # Pads as an array: given as `value_ints`, onnx 1.19 takes them for pads of another rank
    seen_before = op.Pad(counted, np.array([0, 1, 0, 0]))
    sees = op.Gather(seen_before, start, axis=1) < op.Gather(seen_before, end, axis=1)
    return op.Unsqueeze(sees, [-1])


def _key_is_seen(given: Given, seen: Value | None) -> Value:
    """Return the keys that lie in a window and in the masks, (N, Tk) or (Tk,)."""
    _, right = _reach(given.call)
    in_a_window = given.positions < given.Tq + right
    return in_a_window if seen is None else seen & in_a_window


class _Blocks(NamedTuple):
    """The blocks of queries of all heads, several of them in each group.

    Attributes:
        queries: (groups, blocks, queries, D).
        numbers: The number of each block, (groups, blocks).
        total: How many there are, without those that fill up the last group.
        of_head: How many there are of one head.
        rows_of_head: The places for queries of one head.
        columns: The numbers of the keys of a block.
        in_window: Booleans (queries, keys) of each block.
    """

    queries: Value
    numbers: Value
    total: Value
    of_head: Value
    rows_of_head: Value
    columns: Value
    in_window: Value


def _blocks(given: Given) -> _Blocks:
    call, queries, axes = given.call, given.queries, 3
    if call.heads is not None:
        queries, axes = split_heads(queries, call.num_heads, call.key_size), 4
    of_head = (given.Tq + (QUERIES - 1)) // QUERIES
    rows_of_head = of_head * QUERIES
    rows = op.Pad(queries, vector(*[0] * (2 * axes - 2), rows_of_head - given.Tq, 0))
    size = op.Shape(queries, start=-1)
    blocks = reshape(rows, -1, QUERIES, size)
    total = op.Shape(blocks, end=1)
    most = max(1, SCORES // (QUERIES * keys_of_block(call)))
    groups = op.Max((total + (most - 1)) // most, [1])
    of_group = (total + groups - 1) // groups
    of_all = groups * of_group
    filled = op.Pad(blocks, vector(0, 0, 0, of_all - total, 0, 0))
    columns, first = op.Range(0, keys_of_block(call), 1), op.Unsqueeze(op.Range(0, QUERIES, 1), [1])
    return _Blocks(
        queries=reshape(filled, groups, of_group, QUERIES, size, allowzero=1),
        numbers=reshape(op.Min(up_to(of_all), total - 1), groups, of_group, allowzero=1),
        total=total,
        of_head=of_head,
        rows_of_head=rows_of_head,
        columns=columns,
        in_window=(columns >= first) & (columns <= first + sum(_reach(call))),
    )


def _attention(
    given: Given, blocks: _Blocks, seen: Value | None, keys: Value, values: Value, *, selects: bool
) -> Value:
    """Return the output; `selects` tells whether scores of what masks keep out are replaced, not biased."""
    call = given.call
    if call.heads is not None:
        keys = split_heads(keys, call.num_kv_heads, call.key_size)
        values = split_heads(values, call.num_kv_heads, call.value_size)
    size = op.Shape(values, start=-1)
    every_key, every_value = reshape(keys, -1, op.Shape(keys, start=-1)), reshape(values, -1, size)
    seen_in_a_row = None if seen is None else reshape(seen, -1)

    def step(queries: Value, numbers: Value) -> Outputs:
        rows, taking_part = _keys_of_group(given, blocks, numbers, seen_in_a_row)
        some_keys, some_values = (op.Gather(each, rows, axis=0) for each in (every_key, every_value))
        scores = contrib.FusedMatMul(queries, some_keys, transB=1, alpha=call.options["scale"])
        if selects:
            masked = op.Where(blocks.in_window & taking_part, scores, LOWEST)
        else:
            lowest = constant(LOWEST)
            masked = scores + op.Where(taking_part, 0.0, lowest) + op.Where(blocks.in_window, 0.0, lowest + lowest)
        return (op.MatMul(op.Softmax(masked, axis=-1), some_values),)

    (pooled,) = scan([3], step, blocks.queries, blocks.numbers)
    return _together(given, blocks, reshape(pooled, -1, size), size)


def _keys_of_group(given: Given, blocks: _Blocks, numbers: Value, seen: Value | None) -> tuple[Value, Value]:
    """Return the rows of the keys that blocks read (blocks, keys), and booleans (blocks, 1, keys): whether they may."""
    call = given.call
    heads = numbers // blocks.of_head
    first_keys = op.Mod(numbers, blocks.of_head) * QUERIES - _reach(call)[0]
    places = op.Unsqueeze(first_keys, [1]) + blocks.columns
    in_range = op.Clip(places, 0, given.Tk_scalar - 1)

    def rows_of(heads_for_each: int) -> Value:
        """Rows among those of all sequences, each of which so many heads of queries share."""
        return in_range + op.Unsqueeze(heads // heads_for_each * given.Tk, [1])

    taking_part = op.Equal(places, in_range)
    if seen is not None:
        taking_part = op.Gather(seen, rows_of(call.num_heads), axis=0) & taking_part
    return rows_of(heads_per_key(call)), op.Unsqueeze(taking_part, [1])


def _together(given: Given, blocks: _Blocks, rows: Value, size: Value) -> Value:
    """Return the output (N, Tq, H Dv) of the rows of all blocks."""
    call = given.call
    rows = op.Slice(rows, [0], blocks.total * QUERIES, [0])
    if call.heads is None:
        return op.Slice(reshape(rows, given.N, blocks.rows_of_head, size), [0], given.Tq, [1])
    heads = reshape(rows, given.N, call.num_heads, blocks.rows_of_head, size)
    return join_heads(op.Slice(heads, [0], given.Tq, [2]), call.num_heads * call.value_size)
