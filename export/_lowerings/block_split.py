"""Split queries into blocks of bounded memory.

With e elements per query, such as H Tk scores, a block of n queries holds n e elements. The largest n within the bounds
is n = min(max_queries, max(min_queries, max_elements / e)), which gives ceil(Tq / n) blocks. A `Scan` needs blocks of
one size, ceil(Tq / blocks), so that less than one query per block is padding.
"""

from typing import NamedTuple

from .._onnx.lazy_values import Value, arange, concat_shape, op, reshape
from .body_inputs import BodyInputs


class BlockSplit(NamedTuple):
    """Split of the queries into blocks of one size; int64 (1,), except if noted."""

    num_blocks: Value  # at least 1
    block_size: Value  # queries in a block
    padded_queries: Value  # num_blocks * block_size
    padding_queries: Value  # padded_queries - Tq
    block_starts: Value  # position of the first query, (num_blocks,)
    query_offsets: Value  # 0 to block_size - 1, (block_size,)

    def split(self, inputs: BodyInputs, tensor: Value, axes: int = 3) -> Value:
        """Pad a tensor (B, Tq, ...) of `axes` axes with zeros, and reshape it to (B, num_blocks, block_size, ...)."""
        pads = concat_shape(*[0] * (axes + 1), self.padding_queries, *[0] * (axes - 2))
        tail = [op.Shape(tensor, start=2)] if axes > 2 else []
        return reshape(op.Pad(tensor, pads), inputs.B, self.num_blocks, self.block_size, *tail)


def split_queries(
    inputs: BodyInputs, elements_per_query: Value, max_elements: int, max_queries: int, min_queries: int = 1
) -> BlockSplit:
    """Return the split of the Tq queries by bounds of a block; `elements_per_query` is a size, int64 (1,)."""
    fitting = op.Max(op.Div([max_elements], op.Max(elements_per_query, [1])), [min_queries])
    largest_size = op.Min(fitting, [max_queries])
    num_blocks = op.Max((inputs.Tq + largest_size - 1) // largest_size, [1])
    block_size = (inputs.Tq + num_blocks - 1) // num_blocks
    padded = num_blocks * block_size
    return BlockSplit(
        num_blocks, block_size, padded, padded - inputs.Tq, arange(num_blocks) * block_size, arange(block_size)
    )
