"""Loop (`Scan`) over the examples of a batch.

`Scan` hands each step a view of its inputs, and writes the results where they belong.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from .._onnx.lazy_values import Outputs, Value, constant, op, reshape, scan, vector
from .._tracing.attention_calls import Call
from .block_split import Cut
from .body_inputs import Given


class Example(NamedTuple):
    """One example.

    Attributes:
        given: Its part of what the batch is given, without the axis of the batch; lengths of queries, masks and biases
            of pairs are in blocks (blocks, ..., rows, ...).
        cut: How the queries are cut.
        start: The first key that may take part, a vector of one number.
        end: Where those keys end: no key from there on takes part.
    """

    given: Given
    cut: Cut
    start: Value
    end: Value


def over_examples(given: Given, cut: Cut, attend: Callable[..., Outputs], *queries: Value) -> Outputs:
    """Return the outputs of a call by a `Scan` over its examples.

    Args:
        given: What the call is given.
        cut: How the queries are cut.
        attend: Maps an example, and its part of each of `queries`, to its output (blocks, rows, H Dv) and its weights
            (blocks, H, rows, Tk), the latter without the axis of heads where there are none.
        *queries: Tensors (N, blocks, rows, ...).
    """
    call = given.call
    parts = {"keys": given.keys, "values": given.values}
    if call.has_keys_mask:
        parts["keys_mask"] = given.keys_mask
    elif call.has_lengths:
        parts["lengths"] = given.lengths
    if call.has_query_lengths:
        parts["query_lengths"] = cut.of(given, given.query_lengths, axes=2)
    pairwise = {name: _blocks_of_pairs(given, cut, name) for name in pairwise_arguments(call)}
    shared: dict[str, Any] = {
        name: op.Squeeze(blocks, [0]) for name, blocks in pairwise.items() if _is_shared(call, name)
    }
    parts |= {name: blocks for name, blocks in pairwise.items() if name not in shared}

    def step(*of_example: Value) -> Outputs:
        own: dict[str, Any] = dict(zip(parts, of_example[len(queries) :], strict=True))
        part = replace(given, **own, **shared)
        return attend(Example(part, cut, *_limits(part)), *of_example[: len(queries)])

    return _without_extra_rows(given, cut, scan(given.axes, step, *queries, *parts.values()))


def pairwise_arguments(call: Call) -> list[str]:
    """Return the names of what a call has for each pair."""
    return [name for name, has in (("mask", call.has_pair_mask), ("bias", call.has_bias)) if has]


def _is_shared(call: Call, name: str) -> bool:
    """Tell whether a mask of pairs, or a bias, is the same for all examples."""
    return all(size == 1 for size in call.shapes[name][: -2 if call.heads is None else -3])


def _blocks_of_pairs(given: Given, cut: Cut, name: str) -> Value:
    """Return `mask` or `bias` (N or 1, H or 1, Tq or 1, Tk) in blocks (N or 1, blocks, H or 1, rows, Tk)."""
    pairs: Value = getattr(given, name)
    before = op.Shape(pairs, end=2)
    every_row = op.Expand(pairs, vector(before, given.Tq, given.Tk))
    padded = op.Pad(every_row, vector(0, 0, 0, 0, 0, 0, cut.extra_rows, 0))
    return op.Transpose(reshape(padded, before, cut.blocks, cut.rows, given.Tk), perm=[0, 2, 1, 3, 4])


def _limits(given: Given) -> tuple[Value, Value]:
    """Return the first key of an example that may take part, and where they end."""
    start, end = constant([0]), given.Tk
    if given.call.has_keys_mask:
        seen = given.keys_mask
        start = op.ReduceMin(op.Where(seen, given.positions, given.Tk), keepdims=1)
        end = op.ReduceMax(op.Where(seen, given.positions + 1, 0), keepdims=1)
    elif given.call.has_lengths:
        end = op.Unsqueeze(given.lengths, [0])
    right = given.call.band[1]
    return start, end if right is None else op.Min(end, given.Tq + right)


def _without_extra_rows(given: Given, cut: Cut, blocks: Outputs) -> Outputs:
    """Return the blocks of each output together, without the rows that filled up the last."""
    output, *weights = blocks
    rows = reshape(output, given.N, cut.all_rows, op.Shape(output, start=-1))
    outputs = [op.Slice(rows, [0], given.Tq, [1])]
    for each in weights:
        if given.call.heads is None:
            rows, axis = reshape(each, given.N, cut.all_rows, given.Tk), 1
        else:
            by_heads = op.Transpose(each, perm=[0, 2, 1, 3, 4])
            rows, axis = reshape(by_heads, given.N, given.call.num_heads, cut.all_rows, given.Tk), 2
        outputs.append(op.Slice(rows, [0], given.Tq, [axis]))
    return tuple(outputs)
