"""Loop over query blocks of the whole batch.

Each iteration is a call of the body with fewer queries. The number of blocks follows from sizes alone, so that nothing
is copied back from a device to decide it. The last block is padded with copies of the last query. In shapes, n is the
block size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._onnx.lazy_values import Outputs, Value, arange, concat_shape, for_each, op, reshape, scan
from .block_split import split_queries
from .body_inputs import BodyInputs
from .per_example import list_pairwise_inputs

# Even if they exceed the bound of elements: smaller blocks save memory, but each iteration reads all keys and values
MIN_BLOCK_QUERIES = 8
MAX_BLOCK_QUERIES = 2**20  # more than any request has: the bound of elements alone decides


def attend_in_blocks(
    inputs: BodyInputs, body: Callable[[BodyInputs], Outputs], elements_per_query: Value, max_elements: int
) -> Outputs:
    """Return the output (B, Tq, H Dv) of a call, and its weights, by a loop over blocks of queries.

    `body` maps the inputs of a block, with Tq = n, to its outputs; `elements_per_query` is a size.
    """
    call = inputs.call
    # Axis of the queries, and rank, of each input that is split
    layouts = {"queries": (1, 3)} | ({"query_lengths": (1, 2)} if call.has_query_lengths else {})
    layouts |= {name: (2, 4) for name in list_pairwise_inputs(call) if call.shapes[name][-2] != 1}
    split = split_queries(inputs, elements_per_query, max_elements, MAX_BLOCK_QUERIES, MIN_BLOCK_QUERIES)
    positions = op.Min(arange(split.padded_queries), inputs.Tq - 1)
    positions = reshape(positions, split.num_blocks, split.block_size, allowzero=1)
    scanned = {name: _gather_blocks(getattr(inputs, name), positions, *layout) for name, layout in layouts.items()}

    def step(query_positions: Value, *tensors: Value) -> Outputs:
        fields: dict[str, Any] = dict(zip(scanned, tensors, strict=True))
        return body(replace(inputs, Tq=split.block_size, query_positions=query_positions, **fields))

    loop = scan if inputs.for_device else for_each
    output, *weights = loop(inputs.output_ranks, step, positions, *scanned.values())
    merged = _merge_blocks(inputs, output, split.padded_queries, has_heads=False)
    has_heads = call.heads is not None
    return merged, *(_merge_blocks(inputs, blocks, split.padded_queries, has_heads=has_heads) for blocks in weights)


def _gather_blocks(tensor: Value, positions: Value, axis: int, rank: int) -> Value:
    """Return (blocks, ..., n, ...) of a tensor of a rank with the queries on an axis; `positions` (blocks, n)."""
    other_axes = [other for other in range(rank + 1) if other != axis]
    return op.Transpose(op.Gather(tensor, positions, axis=axis), perm=[axis, *other_axes])


def _merge_blocks(inputs: BodyInputs, blocks: Value, padded_queries: Value, *, has_heads: bool) -> Value:
    """Return (B, Tq, columns) of (blocks, B, n, columns), with heads (B, H, Tq, columns), without the padding."""
    axis = 2 if has_heads else 1
    rows = op.Transpose(blocks, perm=[*range(1, axis + 1), 0, axis + 1, axis + 2])
    shape = concat_shape(op.Shape(rows, end=axis), padded_queries, op.Shape(blocks, start=-1))
    return op.Slice(op.Reshape(rows, shape, allowzero=1), [0], inputs.Tq, [axis])
