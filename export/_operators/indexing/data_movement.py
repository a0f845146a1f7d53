"""Handlers that move elements: roll, reverse, slice, update, pad, partition, stitch."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, Refusal, constant_value, fill_attribute
from ..kernel_dtypes import numpy_dtype

INT64 = TensorProto.INT64
MIN_INT32 = -(2**31)


def invert_permutation(graph: Any, node: Any) -> None:
    """Convert `InvertPermutation`: scatter 0 .. n - 1 to the indices in the permutation."""
    op = NodeReplacement(graph, node)
    (order,) = op.inputs
    numbers = op.arange(op.Shape(order))
    inverse = op.ScatterElements(numbers, op.Cast(order, to=INT64), numbers)
    op.finish("Cast", inverse, to=op.dtype)


def reshape(graph: Any, node: Any) -> None:
    """Convert `Reshape` of an empty tensor, of which only the shape is written: a 0 in ONNX copies an input's size."""
    if 0 not in (graph.get_shape(node.output[0]) or ()) or graph.get_dtype(node.output[0]) == TensorProto.STRING:
        convert_with_tf2onnx(graph, node)
        return
    op = NodeReplacement(graph, node)
    shape = op.Max(op.Cast(op.inputs[1], to=INT64), [0])  # -1 is the axis that is empty
    op.finish("ConstantOfShape", shape, value=fill_attribute(0, op.dtype))


def roll(graph: Any, node: Any) -> Refusal:
    """Convert `Roll` along constant axes; an axis may be empty."""
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


def reverse_sequence(graph: Any, node: Any) -> Refusal:
    """Convert `ReverseSequence`: onnxruntime supports time and batch on the first two axes only."""
    rank = graph.get_rank(node.input[0])
    if rank is None:
        return "the rank of its input is unknown"
    first = [node.get_attr_value("seq_dim") % rank, node.get_attr_value("batch_dim", 0) % rank]
    op = NodeReplacement(graph, node)
    source, lengths = op.inputs
    if sorted(first) == [0, 1]:
        order = [*range(rank)]
        time_axis, batch_axis = first
    else:
        order = first + [axis for axis in range(rank) if axis not in first]
        time_axis, batch_axis = 0, 1
    lengths = op.Cast(lengths, to=INT64)
    moved = op.Transpose(source, perm=order)
    result = op.ReverseSequence(moved, lengths, time_axis=time_axis, batch_axis=batch_axis)
    return op.finish("Transpose", result, perm=np.argsort(order).tolist())


def strided_slice(graph: Any, node: Any) -> None:
    """Convert `StridedSlice` with tf2onnx, after a change of the ends.

    For tf2onnx an end of 0 is after a negative begin. Ends that are not constant are compared as float32, so that
    large ones are clipped.
    """
    ends = constant_value(graph, node.input[2])
    steps = constant_value(graph, node.input[3])
    op = GraphBuilder(graph)
    if ends is None:
        least, most = np.array([-(10**9), 10**9], numpy_dtype(graph.get_dtype(node.input[2])))
        graph.replace_inputs(node, [*node.input[:2], op.Min(op.Max(node.input[2], least), most), node.input[3]])
    elif steps is not None and ((ends == 0) & (steps > 0)).any():
        moved = np.where((ends == 0) & (steps > 0), MIN_INT32, ends).astype(ends.dtype)
        graph.replace_inputs(node, [*node.input[:2], op.constant(moved), node.input[3]])
    convert_with_tf2onnx(graph, node)


def dynamic_partition(graph: Any, node: Any) -> None:
    """Convert `DynamicPartition`: for each number, the rows that have it."""
    op = NodeReplacement(graph, node)
    data = _merge_index_axes(op, *op.inputs)
    numbers = op.Reshape(op.inputs[1], [-1])
    for number in range(len(op.shapes)):
        op.finish("Compress", data, op.Equal(numbers, np.int32(number)), output=number, axis=0)


def dynamic_stitch(graph: Any, node: Any) -> None:
    """Convert `DynamicStitch` and `ParallelDynamicStitch`: scatter rows; of several for one index the last counts."""
    op = NodeReplacement(graph, node)
    half = len(op.inputs) // 2
    data = [_merge_index_axes(op, rows, index) for rows, index in zip(op.inputs[half:], op.inputs[:half], strict=True)]
    indices = op.Concat(*(op.Cast(op.Reshape(index, [-1]), to=INT64) for index in op.inputs[:half]), axis=0)
    rows = op.Concat(*data, axis=0)
    size = op.Add(op.ReduceMax(op.Concat(indices, [-1], axis=0), [0], keepdims=1), [1])
    unset = op.ConstantOfShape(size, value=fill_attribute(-1))
    last = op.ScatterElements(unset, indices, op.arange(op.Shape(indices)), axis=0, reduction="max")
    op.finish("Gather", rows, last, axis=0)


def _merge_index_axes(op: GraphBuilder, data: str, indices: str) -> str:
    """Return data with the axes of the indices merged into one."""
    rank = op.graph.get_rank(indices)
    return op.reshape(data, -1, op.dims(data, rank))


def split_v(graph: Any, node: Any) -> None:
    """Convert `SplitV` with a size of -1, the rest, which tf2onnx supports for constant sizes of known axes only."""
    axis = constant_value(graph, node.input[2])
    sizes = constant_value(graph, node.input[1])
    shape = graph.get_shape(node.input[0])
    is_known = sizes is not None and shape is not None and axis is not None and shape[int(axis)] >= 0
    if is_known or axis is None or (sizes is not None and -1 not in sizes):
        convert_with_tf2onnx(graph, node)
        return
    op = NodeReplacement(graph, node)
    parts = op.Cast(op.inputs[1], to=INT64)
    rest = op.Sub(op.Gather(op.Shape(op.inputs[0]), int(axis)), op.ReduceSum(parts, [0], keepdims=0))
    parts = op.Where(op.Less(parts, 0), op.Sub(rest, 1), parts)  # the sum includes the -1
    op.finish_all("Split", op.inputs[0], parts, axis=int(axis))


def transpose(graph: Any, node: Any) -> None:
    """Convert `Transpose` with tf2onnx, after a change of axes that are counted from the end."""
    axes = constant_value(graph, node.input[1]) if len(node.input) > 1 else None
    if axes is not None and (axes < 0).any():
        graph.replace_inputs(node, [node.input[0], GraphBuilder(graph).constant(axes % len(axes))])
    convert_with_tf2onnx(graph, node)


def pad(graph: Any, node: Any) -> None:
    """Convert `PadV2` with tf2onnx, which casts most dtypes to float32, but not the number to pad with."""
    if node.output_dtypes[0] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64):
        number = GraphBuilder(graph).Cast(node.input[2], to=TensorProto.FLOAT)
        graph.replace_inputs(node, [*node.input[:2], number])
    convert_with_tf2onnx(graph, node)


def xla_dynamic_update_slice(graph: Any, node: Any) -> Refusal:
    """Convert `XlaDynamicUpdateSlice` of (operand, update, start).

    The update is padded to the size of the operand, and selected by a mask: its start may be known only at run time,
    as in a loop that fills a buffer. A start is moved to where the update fits, as in XLA.
    """
    if node.output_dtypes == [TensorProto.BOOL]:
        return "onnxruntime has no `Where` of booleans"
    op = NodeReplacement(graph, node)
    operand, update, start = op.inputs
    room = op.Sub(op.Shape(operand), op.Shape(update))
    first = op.Max(op.Min(op.Cast(start, to=INT64), room), [0])
    pads = op.Concat(first, op.Sub(room, first), axis=0)
    ones = op.Expand(1, op.Shape(update))
    mask = op.Cast(op.Pad(ones, pads), to=TensorProto.BOOL)
    return op.finish("Where", mask, op.Pad(update, pads), operand)
