"""Handlers that select by index: one-hot, top-k, argmax, gather."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import Replacement, Writer, constant_of

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
SORTED = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64}  # by onnxruntime's `TopK`
ZERO = np.float32(0)


def one_hot(graph: Any, node: Any) -> None:
    """`OneHot` by comparison: ONNX counts negative numbers from the end, where TensorFlow has none chosen."""
    rank, axis = graph.get_rank(node.input[0]), node.get_attr_value("axis", -1)
    on, off, depth = (constant_of(graph, node.input[each]) for each in (2, 3, 1))
    if rank is None:
        return
    write = Replacement(graph, node)
    ids = write("Cast", write.inputs[0], to=INT64)
    if depth is None:
        classes = write("Range", 0, write("Cast", write.inputs[1], to=INT64), 1)
    else:
        classes = write.constant(np.arange(int(depth), dtype=np.int64))
    if axis not in (-1, rank):
        classes = write("Unsqueeze", classes, [*range(1, rank - axis + 1)])
    same = "Equal", write("Unsqueeze", ids, [axis]), classes
    if on is not None and off is not None and on == 1 and off == 0:
        if write.dtype == BOOL:
            write.last(*same)
        else:
            write.last("Cast", write(*same), to=write.dtype)
    else:
        chosen(write, write(*same), *write.inputs[2:4])


def chosen(write: Replacement, condition: str, one: str, other: str) -> None:
    """Write what a condition chooses, last; onnxruntime has `Where` for few dtypes, and for booleans it is logic."""
    if write.dtype == BOOL:
        write.last("Or", write("And", condition, one), write("And", write("Not", condition), other))
    elif np.dtype(tensor_dtype_to_np_dtype(write.dtype)).kind in "iu" and write.dtype not in SORTED:
        one, other = (write("Cast", each, to=INT64) for each in (one, other))
        write.last("Cast", write("Where", condition, one, other), to=write.dtype)
    else:
        write.last("Where", condition, one, other)


def top_k(graph: Any, node: Any) -> None:
    """`TopKV2`: whole numbers stay whole, which tf2onnx makes float32."""
    (values, places), (dtype, place) = node.output, node.output_dtypes
    (shape, _), (x, k) = node.output_shapes, node.input
    graph.remove_node(node.name)
    write = Writer(graph)
    if dtype not in SORTED:
        whole = np.dtype(tensor_dtype_to_np_dtype(dtype)).kind in "iu"
        x = write("Cast", x, to=INT64 if whole else TensorProto.FLOAT)
    k = write("Reshape", write("Cast", k, to=INT64), [1])
    largest, at = graph.make_node("TopK", [x, k], output_count=2, shapes=[shape, shape]).output
    write.named(values, "Cast", largest, to=dtype, shape=shape, gives=dtype)
    write.named(places, "Cast", at, to=place, shape=shape, gives=place)


def first(graph: Any, node: Any) -> None:
    """`ArgMax` and `ArgMin` as tf2onnx has them, but for booleans, and integers of 16 bits."""
    if graph.get_dtype(node.input[0]) in (BOOL, TensorProto.INT16, TensorProto.UINT16):
        wide = Writer(graph)("Cast", node.input[0], to=TensorProto.INT32)
        graph.replace_input(node, node.input[0], wide, 0)
    convert_with_tf2onnx(graph, node)


def in_top_k(graph: Any, node: Any) -> None:
    """`InTopKV2`: fewer than k are above that of the class; never so where one is not finite, or there is no class."""
    write = Replacement(graph, node)
    x, ids, k = write.inputs
    classes = write("Range", 0, write("Squeeze", write.sizes(x, 1)), 1)
    own = write("Equal", write("Unsqueeze", write("Cast", ids, to=INT64), [1]), classes)
    number = write("ReduceSum", write("Where", own, x, ZERO), [1], keepdims=1)
    above = write("ReduceSum", write("Cast", write("Greater", x, number), to=INT64), [1], keepdims=0)
    there = write("ReduceSum", write("Cast", own, to=INT64), [1], keepdims=0)
    finite = write("Equal", write("ReduceSum", write("Mul", x, ZERO), [1], keepdims=0), ZERO)
    fewer = write("Less", above, write("Mul", write("Cast", k, to=INT64), there))
    write.last("And", finite, fewer)


def broadcast(graph: Any, node: Any) -> None:
    """`BroadcastArgs` of two shapes of known ranks: the shorter one begins with axes of 1."""
    ranks = [(graph.get_shape(each) or [-1])[0] for each in node.input]
    if min(ranks) < 0:
        return
    write = Replacement(graph, node)
    ones = np.ones(abs(ranks[0] - ranks[1]), tensor_dtype_to_np_dtype(write.dtype))
    shapes = [
        write("Concat", ones, each, axis=0) if rank < max(ranks) else each
        for each, rank in zip(write.inputs, ranks, strict=True)
    ]
    is_one = write("Equal", shapes[0], np.ones((), ones.dtype))
    write.last("Where", is_one, shapes[1], shapes[0])


def cross(graph: Any, node: Any) -> None:
    """`Cross` of vectors of three."""
    write = Replacement(graph, node)
    (a, a_next), (b, b_next) = (
        [write("Gather", each, places, axis=-1) for places in ([1, 2, 0], [2, 0, 1])] for each in write.inputs
    )
    write.last("Sub", write("Mul", a, b_next), write("Mul", a_next, b))


def gather(graph: Any, node: Any) -> None:
    """`GatherV2`: `GatherElements` where rows pick their own numbers, `GatherND` of strings, else as tf2onnx has it.

    tf2onnx writes `GatherND`, which took 10 times as long for the relative positions of DeBERTa. It takes axes that
    count from the end as they are.
    """
    batch, axis = node.get_attr_value("batch_dims", 0), constant_of(graph, node.input[2])
    if batch < 0:
        batch += graph.get_rank(node.input[1])
        node.set_attr("batch_dims", batch)
    if batch and axis is not None and axis < 0:
        axis = np.array(axis + graph.get_rank(node.input[0]), np.int64)
        graph.replace_input(node, node.input[2], Writer(graph).constant(axis), 2)
    ranks = [graph.get_rank(name) for name in node.input[:2]]
    if batch and axis is not None and ranks == [batch + 1, batch + 1] and axis == batch:
        write = Replacement(graph, node)
        write.last("GatherElements", *write.inputs[:2], axis=batch)
    elif graph.get_dtype(node.input[0]) == TensorProto.STRING and not batch and axis is not None and None not in ranks:
        _rows_of_strings(Replacement(graph, node), int(axis) % ranks[0], *ranks)
    else:
        convert_with_tf2onnx(graph, node)


def _rows_of_strings(write: Replacement, axis: int, rank: int, axes: int) -> None:
    """Take by `GatherND`: of rows that stand together, onnxruntime 1.32's `Gather` copies the first string alone."""
    first = write("Transpose", write.inputs[0], perm=[axis, *range(axis), *range(axis + 1, rank)])
    places = write("Unsqueeze", write("Cast", write.inputs[1], to=TensorProto.INT64), [-1])
    before, behind = range(axes, axes + axis), range(axes + axis, axes + rank - 1)
    write.last("Transpose", write("GatherND", first, places), perm=[*before, *range(axes), *behind])
