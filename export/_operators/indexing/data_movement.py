"""Handlers that move elements: roll, reverse, slice, pad, partition, stitch."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.helper import tensor_dtype_to_np_dtype

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import Replacement, Writer, constant_of

MOST_NEGATIVE = -(2**31)


def inverted(graph: Any, node: Any) -> None:
    """Write `InvertPermutation`: scatter 0 .. n - 1 to the places that the permutation holds."""
    write = Replacement(graph, node)
    (order,) = write.inputs
    every = write("Range", 0, write("Squeeze", write("Shape", order)), 1)
    inverse = write("ScatterElements", every, write("Cast", order, to=TensorProto.INT64), every)
    write.last("Cast", inverse, to=write.dtype)


def reshape(graph: Any, node: Any) -> None:
    """`Reshape`; of an empty tensor only the shape is written, since a size of 0 in ONNX copies that of the input."""
    if 0 not in (graph.get_shape(node.output[0]) or ()) or graph.get_dtype(node.output[0]) == TensorProto.STRING:
        convert_with_tf2onnx(graph, node)
        return
    write = Replacement(graph, node)
    zero = helper.make_tensor("value", write.dtype, [1], [0])
    sizes = write("Max", write("Cast", write.inputs[1], to=TensorProto.INT64), [0])  # -1 is the axis that is empty
    write.last("ConstantOfShape", sizes, value=zero)


def rolled(graph: Any, node: Any) -> None:
    """`Roll` along axes that are known; an axis of 0 has no place to go to."""
    if not node.inputs[2].is_const():
        return
    axes = np.ravel(node.inputs[2].get_tensor_value(as_list=False)).tolist()
    write = Replacement(graph, node)
    found, shifts, _ = write.inputs
    shifts = write("Reshape", write("Cast", shifts, to=TensorProto.INT64), [-1])
    for number, axis in enumerate(axes):
        size = write("Max", write("Gather", write("Shape", found), [axis], axis=0), [1])
        cut = write("Sub", size, write("Mod", write("Gather", shifts, [number], axis=0), size))
        parts = write("Slice", found, cut, [2**31], [axis]), write("Slice", found, [0], cut, [axis])
        found = write("Concat", *parts, axis=axis)
    write.last("Identity", found)


def reversed_sequences(graph: Any, node: Any) -> None:
    """`ReverseSequence`: onnxruntime has time and batch on the first two axes alone, so others are put there."""
    time, batch = node.get_attr_value("seq_dim"), node.get_attr_value("batch_dim", 0)
    rank = graph.get_rank(node.input[0])
    if rank is None:
        return
    write = Replacement(graph, node)
    source, lengths = write.inputs
    first = [time % rank, batch % rank]
    order = first + [axis for axis in range(rank) if axis not in first]
    if sorted(first) == [0, 1]:
        order, first = list(range(rank)), order
        time_axis, batch_axis = first[:2]
    else:
        time_axis, batch_axis = 0, 1
    lengths = write("Cast", lengths, to=TensorProto.INT64)
    moved = write("Transpose", source, perm=order)
    found = write("ReverseSequence", moved, lengths, time_axis=time_axis, batch_axis=batch_axis)
    write.last("Transpose", found, perm=np.argsort(order).tolist())


def cut_out(graph: Any, node: Any) -> None:
    """`StridedSlice` as tf2onnx has it, but for ends: 0 is before all, and those far out are no float32."""
    end, step = node.inputs[2], node.inputs[3]
    if not end.is_const():  # tf2onnx compares it as float32
        write = Writer(graph)
        least, most = np.array([-(10**9), 10**9], tensor_dtype_to_np_dtype(graph.get_dtype(node.input[2])))
        within = write("Min", write("Max", node.input[2], least), most)
        graph.replace_inputs(node, [*node.input[:2], within, node.input[3]])
    elif step.is_const():
        ends, steps = (each.get_tensor_value(as_list=False) for each in (end, step))
        before_all = (ends == 0) & (steps > 0)
        if before_all.any():
            ends = Writer(graph).constant(np.where(before_all, MOST_NEGATIVE, ends).astype(ends.dtype))
            graph.replace_inputs(node, [*node.input[:2], ends, node.input[3]])
    convert_with_tf2onnx(graph, node)


def partitioned(graph: Any, node: Any) -> None:
    """`DynamicPartition`: for each number, the rows that have it."""
    (data, numbers), outputs, shapes, kinds = node.input, node.output, node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    write = Writer(graph)
    data, numbers = _flat(write, data, numbers), write("Reshape", numbers, [-1])
    for number, (output, shape, kind) in enumerate(zip(outputs, shapes, kinds, strict=True)):
        chosen = write("Equal", numbers, np.int32(number))
        write.named(output, "Compress", data, chosen, shape=shape, gives=kind, axis=0)


def stitched(graph: Any, node: Any) -> None:
    """`DynamicStitch` and `ParallelDynamicStitch`: rows put where indices say; of several for one place the last."""
    write = Replacement(graph, node)
    half = len(write.inputs) // 2
    data = [_flat(write, *each) for each in zip(write.inputs[half:], write.inputs[:half], strict=True)]
    indices = [write("Cast", write("Reshape", each, [-1]), to=TensorProto.INT64) for each in write.inputs[:half]]
    places, rows = write("Concat", *indices, axis=0), write("Concat", *data, axis=0)
    size = write("Add", write("ReduceMax", write("Concat", places, [-1], axis=0), [0], keepdims=1), [1])
    none = write("ConstantOfShape", size, value=helper.make_tensor("value", TensorProto.INT64, [1], [-1]))
    last = write("ScatterElements", none, places, _rows(write, places), axis=0, reduction="max")
    write.last("Gather", rows, last, axis=0)


def sizes(write: Writer, tensor: str, start: int, end: int = 2**31) -> str:
    """Return the sizes of axes, for a target of `Reshape`: there tf2onnx reads `Shape` without its attributes."""
    return write("Slice", write("Shape", tensor), [start], [end], [0])


def _flat(write: Writer, data: str, indices: str) -> str:
    """Return data with the axes that indices have made one."""
    rank = write.graph.get_rank(indices)
    return write("Reshape", data, write("Concat", [-1], sizes(write, data, rank), axis=0))


def _rows(write: Writer, vector: str) -> str:
    return write("Range", 0, write("Squeeze", write("Shape", vector)), 1)


def split(graph: Any, node: Any) -> None:
    """`SplitV`, whose size of -1 is what the others leave: tf2onnx knows that only of sizes that are known."""
    sizes, axis = node.inputs[1], node.inputs[2]
    shape = graph.get_shape(node.input[0])
    known = sizes.is_const() and shape is not None and axis.is_const() and shape[int(axis.get_tensor_value())] >= 0
    if known or not axis.is_const() or (sizes.is_const() and -1 not in sizes.get_tensor_value()):
        convert_with_tf2onnx(graph, node)
        return
    axis, (data, given, _), outputs = int(axis.get_tensor_value()), node.input, node.output
    shapes, kinds = node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    write = Writer(graph)
    parts = write("Cast", given, to=TensorProto.INT64)
    rest = write("Sub", write("Gather", write("Shape", data), axis), write("ReduceSum", parts, [0], keepdims=0))
    parts = write("Where", write("Less", parts, 0), write("Sub", rest, 1), parts)  # the sum has the -1 in it
    graph.make_node("Split", [data, parts], attr={"axis": axis}, outputs=outputs, shapes=shapes, dtypes=kinds)


def transposed(graph: Any, node: Any) -> None:
    """`Transpose` as tf2onnx has it, but for axes that are counted from the end."""
    if len(node.input) > 1:
        axes = constant_of(graph, node.input[1])
        if axes is not None and (axes < 0).any():
            graph.replace_inputs(node, [node.input[0], Writer(graph).constant(axes % len(axes))])
    convert_with_tf2onnx(graph, node)


def padded(graph: Any, node: Any) -> None:
    """`PadV2` as tf2onnx has it, which makes of most dtypes float32, and of what is filled in none."""
    if node.output_dtypes[0] not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64):
        filling = Writer(graph)("Cast", node.input[2], to=TensorProto.FLOAT)
        graph.replace_inputs(node, [*node.input[:2], filling])
    convert_with_tf2onnx(graph, node)
