"""Loop over query blocks of the whole batch.

Each block is a call with fewer queries. How many follows from sizes alone, so that nothing is read back from a device
to decide it. Places after the last query are filled with that query.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._onnx.lazy_values import Outputs, Value, loop, op, reshape, scan, up_to, vector
from .block_split import cut
from .body_inputs import Given
from .per_example import pairwise_arguments

LEAST_ROWS = 8  # queries in a block, where there are as many
MOST_ROWS = 2**20


def by_blocks(given: Given, body: Callable[[Given], Outputs], numbers_of_row: Value, largest: int) -> Outputs:
    """Return the outputs of a call by a loop over blocks of its queries.

    Args:
        given: What the call is given.
        body: Maps what a block is given to the outputs for its queries.
        numbers_of_row: How many numbers a query has in its block at most, a vector of one number.
        largest: How many numbers a block may have.
    """
    call = given.call
    axes = {"queries": (1, 3)} | ({"query_lengths": (1, 2)} if call.has_query_lengths else {})
    axes |= {name: (2, 4) for name in pairwise_arguments(call) if call.shapes[name][-2] != 1}
    blocks = cut(given, numbers_of_row, largest, MOST_ROWS, LEAST_ROWS)
    numbers = op.Min(up_to(blocks.all_rows), given.Tq - 1)
    numbers = reshape(numbers, blocks.blocks, blocks.rows, allowzero=1)
    parts = {name: _in_blocks(getattr(given, name), numbers, *of_part) for name, of_part in axes.items()}

    def step(query_numbers: Value, *of_block: Value) -> Outputs:
        own: dict[str, Any] = dict(zip(parts, of_block, strict=True))
        return body(replace(given, Tq=blocks.rows, query_numbers=query_numbers, **own))

    outputs = (scan if given.for_device else loop)(given.axes, step, numbers, *parts.values())
    return tuple(
        _together(given, each, blocks.all_rows, of_heads=bool(number) and call.heads is not None)
        for number, each in enumerate(outputs)
    )


def _in_blocks(tensor: Value, numbers: Value, axis: int, axes: int) -> Value:
    """Return a tensor of so many axes, of which one is that of queries, by blocks of its rows."""
    others = [other for other in range(axes + 1) if other != axis]
    return op.Transpose(op.Gather(tensor, numbers, axis=axis), perm=[axis, *others])


def _together(given: Given, blocks: Value, all_rows: Value, *, of_heads: bool) -> Value:
    """Return an output of its blocks, without the rows that filled up the last."""
    axis = 2 if of_heads else 1
    rows = op.Transpose(blocks, perm=[*range(1, axis + 1), 0, axis + 1, axis + 2])
    shape = vector(op.Shape(rows, end=axis), all_rows, op.Shape(blocks, start=-1))
    return op.Slice(op.Reshape(rows, shape, allowzero=1), [0], given.Tq, [axis])
