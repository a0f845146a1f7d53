"""Loop (`Scan`) over the examples of a batch.

`Scan` hands each iteration a view of its inputs, and writes the results where they belong, so that neither is copied.
In shapes, n is the block size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from .._onnx.lazy_values import Outputs, Value, concat_shape, constant, op, reshape, scan
from .._tracing.attention_calls import TracedCall
from .block_split import BlockSplit
from .body_inputs import BodyInputs


class SplitExample(NamedTuple):
    """Example (batch entry) whose queries are split into blocks; no tensor has the axis B."""

    # Query lengths are split into blocks (blocks, n), masks and biases into (blocks, H or 1, n, Tk)
    inputs: BodyInputs
    block_split: BlockSplit
    first_key: Value  # position of the first unmasked key, int64 (1,)
    end_key: Value  # behind the last unmasked key, int64 (1,)


def scan_examples(
    inputs: BodyInputs, split: BlockSplit, attend_example: Callable[..., Outputs], *queries: Value
) -> Outputs:
    """Return the output (B, Tq, H Dv) of a call, and its weights, by a `Scan` over the examples.

    `attend_example` maps an example and its blocks (blocks, n, ...) of each of `queries` (B, blocks, n, ...) to its
    output (blocks, n, H Dv) and, if returned, its weights (blocks, H, n, Tk), without heads (blocks, n, Tk).
    """
    call = inputs.call
    scanned = {"keys": inputs.keys, "values": inputs.values}
    if call.has_key_mask:
        scanned["keys_mask"] = inputs.keys_mask
    elif call.has_lengths:
        scanned["lengths"] = inputs.lengths
    if call.has_query_lengths:
        scanned["query_lengths"] = split.split(inputs, inputs.query_lengths, axes=2)
    pairwise = {name: _split_pairwise(inputs, split, name) for name in list_pairwise_inputs(call)}
    shared: dict[str, Any] = {
        name: op.Squeeze(blocks, [0]) for name, blocks in pairwise.items() if _is_shared_by_examples(call, name)
    }
    scanned |= {name: blocks for name, blocks in pairwise.items() if name not in shared}

    def step(*elements: Value) -> Outputs:
        fields: dict[str, Any] = dict(zip(scanned, elements[len(queries) :], strict=True))
        example_inputs = replace(inputs, **fields, **shared)
        example = SplitExample(example_inputs, split, *_find_unmasked_range(example_inputs))
        return attend_example(example, *elements[: len(queries)])

    return _drop_padding_queries(inputs, split, scan(inputs.output_ranks, step, *queries, *scanned.values()))


def list_pairwise_inputs(call: TracedCall) -> list[str]:
    """Return the names of the inputs with axes of queries and keys: `mask`, `bias`."""
    return [name for name, is_present in (("mask", call.has_attention_mask), ("bias", call.has_bias)) if is_present]


def _is_shared_by_examples(call: TracedCall, name: str) -> bool:
    """Return True if `mask` or `bias` is the same for all examples."""
    return all(size == 1 for size in call.shapes[name][: -2 if call.heads is None else -3])


def _split_pairwise(inputs: BodyInputs, split: BlockSplit, name: str) -> Value:
    """Split `mask` or `bias` (B or 1, H or 1, Tq or 1, Tk) into blocks (B or 1, blocks, H or 1, n, Tk)."""
    pairwise: Value = getattr(inputs, name)
    batch_and_heads = op.Shape(pairwise, end=2)
    expanded = op.Expand(pairwise, concat_shape(batch_and_heads, inputs.Tq, inputs.Tk))
    padded = op.Pad(expanded, concat_shape(0, 0, 0, 0, 0, 0, split.padding_queries, 0))
    blocks = reshape(padded, batch_and_heads, split.num_blocks, split.block_size, inputs.Tk)
    return op.Transpose(blocks, perm=[0, 2, 1, 3, 4])


def _find_unmasked_range(inputs: BodyInputs) -> tuple[Value, Value]:
    """Return the first unmasked key of an example, and the key behind its last one, both int64 (1,)."""
    start, end = constant([0]), inputs.Tk
    if inputs.call.has_key_mask:
        start = op.ReduceMin(op.Where(inputs.keys_mask, inputs.key_positions, inputs.Tk), keepdims=1)
        end = op.ReduceMax(op.Where(inputs.keys_mask, inputs.key_positions + 1, 0), keepdims=1)
    elif inputs.call.has_lengths:
        end = op.Unsqueeze(inputs.lengths, [0])
    right = inputs.call.window[1]
    return start, end if right is None else op.Min(end, inputs.Tq + right)


def _drop_padding_queries(inputs: BodyInputs, split: BlockSplit, outputs: Outputs) -> Outputs:
    """Merge blocks (B, blocks, n, H Dv) to (B, Tq, H Dv), and weights (B, blocks, H, n, Tk) to (B, H, Tq, Tk)."""
    output, *weights = outputs
    merged = reshape(output, inputs.B, split.padded_queries, op.Shape(output, start=-1))
    results = [op.Slice(merged, [0], inputs.Tq, [1])]
    for blocks in weights:
        if inputs.call.heads is None:
            merged, axis = reshape(blocks, inputs.B, split.padded_queries, inputs.Tk), 1
        else:
            heads_first = op.Transpose(blocks, perm=[0, 2, 1, 3, 4])
            merged = reshape(heads_first, inputs.B, inputs.call.num_heads, split.padded_queries, inputs.Tk)
            axis = 2
        results.append(op.Slice(merged, [0], inputs.Tq, [axis]))
    return tuple(results)
