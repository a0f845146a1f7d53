"""Split queries into blocks of bounded memory.

Scores of all queries at once take memory in proportion to Tq Tk. A block of n queries holds n e elements, with e
elements per query (such as H Tk scores), so the largest n within a bound is n = min(max_queries, max(min_queries,
max_elements / e)). The number of blocks is ceil(Tq / n), and the size of all blocks is then lowered to
ceil(Tq / blocks): blocks of one size run in a `Scan`, and fewer than `blocks` queries of padding are computed in vain.
"""

from typing import NamedTuple

from .._onnx.lazy_values import Value, op, reshape, up_to, vector
from .body_inputs import BodyInputs


class BlockSplit(NamedTuple):
    """Split of the queries into blocks of one size; int64 tensors of shape (1,) unless noted.

    Attributes:
        num_blocks: Number of blocks, at least 1.
        block_size: Queries in a block.
        padded_queries: num_blocks * block_size.
        padding_queries: padded_queries - Tq, queries that the last block lacks.
        block_starts: Position of the first query of each block, (num_blocks,).
        query_offsets: 0 to block_size - 1, (block_size,).
    """

    num_blocks: Value
    block_size: Value
    padded_queries: Value
    padding_queries: Value
    block_starts: Value
    query_offsets: Value

    def split(self, inputs: BodyInputs, tensor: Value, axes: int = 3) -> Value:
        """Pad a tensor (B, Tq, ...) of `axes` axes with zeros, and reshape it to (B, num_blocks, block_size, ...)."""
        pads = vector(*[0] * (axes + 1), self.padding_queries, *[0] * (axes - 2))
        tail = [op.Shape(tensor, start=2)] if axes > 2 else []
        return reshape(op.Pad(tensor, pads), inputs.B, self.num_blocks, self.block_size, *tail)


def split_queries(
    inputs: BodyInputs, elements_per_query: Value, max_elements: int, max_queries: int, min_queries: int = 1
) -> BlockSplit:
    """Return the split of the Tq queries into blocks.

    Args:
        inputs: The inputs of the body.
        elements_per_query: Elements that a query adds to its block, int64 (1,).
        max_elements: Most elements in a block.
        max_queries: Most queries in a block.
        min_queries: Fewest queries in a block (if there are as many), even if they exceed `max_elements`.
    """
    fitting = op.Max(op.Div([max_elements], op.Max(elements_per_query, [1])), [min_queries])
    largest_size = op.Min(fitting, [max_queries])
    num_blocks = op.Max((inputs.Tq + largest_size - 1) // largest_size, [1])
    block_size = (inputs.Tq + num_blocks - 1) // num_blocks
    padded = num_blocks * block_size
    return BlockSplit(
        num_blocks, block_size, padded, padded - inputs.Tq, up_to(num_blocks) * block_size, up_to(block_size)
    )
