"""Handlers that only move elements: reshape, roll, reverse, slice, update, pad, transpose, partition, stitch."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason, constant_value, fill_attribute
from ..kernel_dtypes import numpy_dtype

INT64 = TensorProto.INT64
MIN_INT32 = -(2**31)


def invert_permutation(graph: Any, node: Any) -> None:
    """Convert `InvertPermutation` of (n,): scatter 0 .. n - 1 to the indices in the permutation, and keep int32."""
    op = NodeReplacement(graph, node)
    (order,) = op.inputs
    indices = op.arange(op.Shape(order))
    inverse = op.ScatterElements(indices, op.Cast(order, to=INT64), indices)
    op.finish("Cast", inverse, to=op.dtype)


def reshape(graph: Any, node: Any) -> None:
    """Convert `Reshape` with tf2onnx; of an empty tensor to `ConstantOfShape`."""
    # A size of 0 would copy that of the input: `Reshape` of ONNX does so, and tf2onnx does not set `allowzero`
    if 0 not in (graph.get_shape(node.output[0]) or ()) or graph.get_dtype(node.output[0]) == TensorProto.STRING:
        convert_with_tf2onnx(graph, node)
        return
    op = NodeReplacement(graph, node)
    # -1 is the empty axis
    shape = op.Max(op.Cast(op.inputs[1], to=INT64), [0])
    op.finish("ConstantOfShape", shape, value=fill_attribute(0, op.dtype))


def roll(graph: Any, node: Any) -> RejectionReason:
    """Convert `Roll` along constant axes to `Slice` and `Concat`; tf2onnx fails for empty axes."""
    axes = constant_value(graph, node.input[2])
    if axes is None:
        return "its axes are not constant"
    op = NodeReplacement(graph, node)
    result = op.inputs[0]
    shifts = op.Reshape(op.Cast(op.inputs[1], to=INT64), [-1])
    for index, axis in enumerate(axes.ravel().tolist()):
        size = op.Max(op.Gather(op.Shape(result), [axis], axis=0), [1])
        start = op.Sub(size, op.Mod(op.Gather(shifts, [index], axis=0), size))
        parts = [op.Slice(result, start, [2**31], [axis]), op.Slice(result, [0], start, [axis])]
        result = op.Concat(*parts, axis=axis)
    return op.finish("Identity", result)


def reverse_sequence(graph: Any, node: Any) -> RejectionReason:
    """Convert `ReverseSequence` of (data, lengths (B,)), transposed: onnxruntime needs batch and time axis in front."""
    rank = graph.get_rank(node.input[0])
    if rank is None:
        return "the rank of its input is unknown"
    leading = [node.get_attr_value("seq_dim") % rank, node.get_attr_value("batch_dim", 0) % rank]
    op = NodeReplacement(graph, node)
    source, lengths = op.inputs
    if sorted(leading) == [0, 1]:
        order = [*range(rank)]
        time_axis, batch_axis = leading
    else:
        order = leading + [axis for axis in range(rank) if axis not in leading]
        time_axis, batch_axis = 0, 1
    lengths = op.Cast(lengths, to=INT64)
    transposed = op.Transpose(source, perm=order)
    result = op.ReverseSequence(transposed, lengths, time_axis=time_axis, batch_axis=batch_axis)
    return op.finish("Transpose", result, perm=np.argsort(order).tolist())


def strided_slice(graph: Any, node: Any) -> None:
    """Convert `StridedSlice` with tf2onnx, after a correction of its ends."""
    # After a negative begin, tf2onnx reads an end of 0 as the end of the axis: the end becomes the minimum of int32.
    # tf2onnx compares computed ends in float32, which is not exact for large ends: they are clipped to 10^9.
    ends = constant_value(graph, node.input[2])
    steps = constant_value(graph, node.input[3])
    op = GraphBuilder(graph)
    if ends is None:
        min_end, max_end = np.array([-(10**9), 10**9], numpy_dtype(graph.get_dtype(node.input[2])))
        graph.replace_inputs(node, [*node.input[:2], op.Min(op.Max(node.input[2], min_end), max_end), node.input[3]])
    elif steps is not None and ((ends == 0) & (steps > 0)).any():
        corrected_ends = np.where((ends == 0) & (steps > 0), MIN_INT32, ends).astype(ends.dtype)
        graph.replace_inputs(node, [*node.input[:2], op.constant(corrected_ends), node.input[3]])
    convert_with_tf2onnx(graph, node)


def dynamic_partition(graph: Any, node: Any) -> None:
    """Convert `DynamicPartition` of (data, partitions) to a `Compress` of rows for each output."""
    op = NodeReplacement(graph, node)
    data = _merge_index_axes(op, *op.inputs)
    partitions = op.Reshape(op.inputs[1], [-1])
    for partition in range(len(op.shapes)):
        op.finish("Compress", data, op.Equal(partitions, np.int32(partition)), output=partition, axis=0)


def dynamic_stitch(graph: Any, node: Any) -> None:
    """Convert `DynamicStitch` and `ParallelDynamicStitch` of (indices ..., data ...) to `Gather` of rows."""
    # The row of an index is the last one with this index: the maximum of scattered row numbers, -1 if there is none
    op = NodeReplacement(graph, node)
    num_tensors = len(op.inputs) // 2
    parts, data_parts = op.inputs[:num_tensors], op.inputs[num_tensors:]
    data = [_merge_index_axes(op, rows, part) for rows, part in zip(data_parts, parts, strict=True)]
    indices = op.Concat(*(op.Cast(op.Reshape(part, [-1]), to=INT64) for part in parts), axis=0)
    rows = op.Concat(*data, axis=0)
    num_rows = op.Add(op.ReduceMax(op.Concat(indices, [-1], axis=0), [0], keepdims=1), [1])
    minus_ones = op.ConstantOfShape(num_rows, value=fill_attribute(-1))
    last_row = op.ScatterElements(minus_ones, indices, op.arange(op.Shape(indices)), axis=0, reduction="max")
    op.finish("Gather", rows, last_row, axis=0)


def _merge_index_axes(op: GraphBuilder, data: str, indices: str) -> str:
    """Merge the leading axes of data, (indices' shape ..., ...), to one."""
    rank = op.graph.get_rank(indices)
    return op.reshape(data, -1, op.dims(data, rank))


def split_v(graph: Any, node: Any) -> None:
    """Convert `SplitV` to `Split`: by tf2onnx, unless sizes contain -1, the remaining size, of an unknown axis."""
    axis = constant_value(graph, node.input[2])
    sizes = constant_value(graph, node.input[1])
    shape = graph.get_shape(node.input[0])
    is_static = sizes is not None and shape is not None and axis is not None and shape[int(axis)] >= 0
    if is_static or axis is None or (sizes is not None and -1 not in sizes):
        convert_with_tf2onnx(graph, node)
        return
    op = NodeReplacement(graph, node)
    part_sizes = op.Cast(op.inputs[1], to=INT64)
    remaining = op.Sub(op.Gather(op.Shape(op.inputs[0]), int(axis)), op.ReduceSum(part_sizes, [0], keepdims=0))
    # The sum contains the -1
    part_sizes = op.Where(op.Less(part_sizes, 0), op.Sub(remaining, 1), part_sizes)
    op.finish_all("Split", op.inputs[0], part_sizes, axis=int(axis))


def transpose(graph: Any, node: Any) -> None:
    """Convert `Transpose` with tf2onnx, after a replacement of negative axes, which tf2onnx does not support."""
    axes = constant_value(graph, node.input[1]) if len(node.input) > 1 else None
    if axes is not None and (axes < 0).any():
        graph.replace_inputs(node, [node.input[0], GraphBuilder(graph).constant(axes % len(axes))])
    convert_with_tf2onnx(graph, node)


def pad(graph: Any, node: Any) -> None:
    """Convert `PadV2` to `Pad` with tf2onnx, which casts most dtypes to float32, but not the fill value."""
    if node.output_dtypes[0] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64):
        fill_value = GraphBuilder(graph).Cast(node.input[2], to=TensorProto.FLOAT)
        graph.replace_inputs(node, [*node.input[:2], fill_value])
    convert_with_tf2onnx(graph, node)


def xla_dynamic_update_slice(graph: Any, node: Any) -> RejectionReason:
    """Convert `XlaDynamicUpdateSlice` of (operand, update, start (rank,)) to `Pad` and `Where`; no tf2onnx mapping."""
    # The start may be computed, as in a loop that fills a buffer, so the update is padded to the shape of the operand,
    # and selected by a mask. As in XLA, the start is clipped so that the update fits.
    if node.output_dtypes == [TensorProto.BOOL]:
        return "onnxruntime has no `Where` of booleans"
    op = NodeReplacement(graph, node)
    operand, update, start = op.inputs
    max_start = op.Sub(op.Shape(operand), op.Shape(update))
    clipped_start = op.Max(op.Min(op.Cast(start, to=INT64), max_start), [0])
    pads = op.Concat(clipped_start, op.Sub(max_start, clipped_start), axis=0)
    ones = op.Expand(1, op.Shape(update))
    mask = op.Cast(op.Pad(ones, pads), to=TensorProto.BOOL)
    return op.finish("Where", mask, op.Pad(update, pads), operand)
