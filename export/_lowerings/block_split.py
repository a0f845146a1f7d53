"""Split queries into blocks of bounded memory."""

from typing import NamedTuple

from .._onnx.lazy_values import Value, op, reshape, up_to, vector
from .body_inputs import Given


class Cut(NamedTuple):
    """How queries are cut into blocks, in vectors of one number.

    Attributes:
        blocks: How many blocks there are.
        rows: How many queries each has.
        all_rows: The places of all blocks.
        extra_rows: How many places of the last have no query.
        first_rows: The number of the first query of each, (blocks,).
        row_numbers: 0 to rows - 1.
    """

    blocks: Value
    rows: Value
    all_rows: Value
    extra_rows: Value
    first_rows: Value
    row_numbers: Value

    def of(self, given: Given, tensor: Value, axes: int = 3) -> Value:
        """Return blocks (N, blocks, rows, ...) of a tensor (N, Tq, ...) of so many axes; zeros fill up the last."""
        pads = vector(*[0] * (axes + 1), self.extra_rows, *[0] * (axes - 2))
        tail = [op.Shape(tensor, start=2)] if axes > 2 else []
        return reshape(op.Pad(tensor, pads), given.N, self.blocks, self.rows, *tail)


def cut(given: Given, size_of_row: Value, largest: int, most: int, least: int = 1) -> Cut:
    """Return so many blocks of so many queries.

    Args:
        given: What the call is given.
        size_of_row: How many numbers a query has in its block, a vector of one number.
        largest: How many numbers a block may have.
        most: How many queries a block may have.
        least: How many it has all the same, where there are as many.
    """
    fitting = op.Max(op.Div([largest], op.Max(size_of_row, [1])), [least])
    most_rows = op.Min(fitting, [most])
    blocks = op.Max((given.Tq + most_rows - 1) // most_rows, [1])
    rows = (given.Tq + blocks - 1) // blocks
    all_rows = blocks * rows
    return Cut(blocks, rows, all_rows, all_rows - given.Tq, up_to(blocks) * rows, up_to(rows))
