"""Handlers that select or find: one-hot, top-k, argmax, gather, searchsorted."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, Refusal, constant_value
from ..kernel_dtypes import numpy_dtype

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
ZERO = np.float32(0)


def one_hot(graph: Any, node: Any) -> Refusal:
    """Convert `OneHot` to a comparison: ONNX counts negative numbers from the end, TensorFlow chooses no class."""
    rank = graph.get_rank(node.input[0])
    if rank is None:
        return "the rank of its indices is unknown"
    axis = node.get_attr_value("axis", -1)
    depth, on, off = (constant_value(graph, name) for name in node.input[1:4])
    op = NodeReplacement(graph, node)
    ids = op.Cast(op.inputs[0], to=INT64)
    if depth is None:
        classes = op.Range(0, op.Cast(op.inputs[1], to=INT64), 1)
    else:
        classes = op.constant(np.arange(int(depth), dtype=np.int64))
    if axis not in (-1, rank):
        classes = op.Unsqueeze(classes, [*range(1, rank - axis + 1)])
    pair = (op.Unsqueeze(ids, [axis]), classes)
    if on is None or off is None or on != 1 or off != 0:
        finish_where(op, op.Equal(*pair), *op.inputs[2:4])
    elif op.dtype == BOOL:
        op.finish("Equal", *pair)
    else:
        op.finish("Cast", op.Equal(*pair), to=op.dtype)
    return None


def finish_where(op: NodeReplacement, condition: str, one: str, other: str) -> None:
    """Write a selection as the output; onnxruntime has `Where` for few dtypes, and for booleans it is logic."""
    if op.dtype == BOOL:
        op.finish("Or", op.And(condition, one), op.And(op.Not(condition), other))
    elif op.computation_dtype("Where") == op.dtype:
        op.finish("Where", condition, one, other)
    else:
        selected = op.Where(condition, op.widen(one, "Where"), op.widen(other, "Where"))
        op.finish("Cast", selected, to=op.dtype)


def top_k(graph: Any, node: Any) -> None:
    """Convert `TopKV2`: integers stay exact, which tf2onnx converts to float32."""
    op = NodeReplacement(graph, node)
    x = op.widen(op.inputs[0], "TopK")
    k = op.Reshape(op.Cast(op.inputs[1], to=INT64), [1])
    values, indices = op.write_outputs("TopK", [True, True], x, k)
    op.finish("Cast", values, to=op.dtype)
    op.finish("Cast", indices, output=1, to=op.dtypes[1])


def arg_max_and_arg_min(graph: Any, node: Any) -> None:
    """Convert `ArgMax` and `ArgMin` with tf2onnx, which casts neither booleans nor integers of 16 bits."""
    if graph.get_dtype(node.input[0]) in (BOOL, TensorProto.INT16, TensorProto.UINT16):
        widened = GraphBuilder(graph).Cast(node.input[0], to=TensorProto.INT32)
        graph.replace_input(node, node.input[0], widened, 0)
    convert_with_tf2onnx(graph, node)


def in_top_k(graph: Any, node: Any) -> None:
    """Convert `InTopKV2`: fewer than k logits are above that of the class.

    False if a logit is not finite, or if there is no such class.
    """
    op = NodeReplacement(graph, node)
    x, ids, k = op.inputs
    classes = op.arange(op.dims(x, 1))
    is_class = op.Equal(op.Unsqueeze(op.Cast(ids, to=INT64), [1]), classes)
    logit = op.ReduceSum(op.Where(is_class, x, ZERO), [1], keepdims=1)
    above = op.ReduceSum(op.Cast(op.Greater(x, logit), to=INT64), [1], keepdims=0)
    exists = op.ReduceSum(op.Cast(is_class, to=INT64), [1], keepdims=0)
    finite = op.Equal(op.ReduceSum(op.Mul(x, ZERO), [1], keepdims=0), ZERO)
    fewer = op.Less(above, op.Mul(op.Cast(k, to=INT64), exists))
    op.finish("And", finite, fewer)


def broadcast_args(graph: Any, node: Any) -> Refusal:
    """Convert `BroadcastArgs` of two shapes of known ranks: the shorter one gets leading axes of 1."""
    ranks = [(graph.get_shape(name) or [-1])[0] for name in node.input]
    if min(ranks) < 0:
        return "a rank is unknown"
    op = NodeReplacement(graph, node)
    ones = np.ones(abs(ranks[0] - ranks[1]), numpy_dtype(op.dtype))
    first, second = (
        op.Concat(ones, name, axis=0) if rank < max(ranks) else name
        for name, rank in zip(op.inputs, ranks, strict=True)
    )
    return op.finish("Where", op.Equal(first, op.number(1)), second, first)


def cross(graph: Any, node: Any) -> None:
    """Convert `Cross` of vectors of three: a[1, 2, 0] b[2, 0, 1] - a[2, 0, 1] b[1, 2, 0]."""
    op = NodeReplacement(graph, node)
    (a, a_next), (b, b_next) = (
        [op.Gather(vectors, indices, axis=-1) for indices in ([1, 2, 0], [2, 0, 1])] for vectors in op.inputs
    )
    op.finish("Sub", op.Mul(a, b_next), op.Mul(a_next, b))


def gather(graph: Any, node: Any) -> None:
    """Convert `GatherV2` to `GatherElements` if rows index their own elements, to `GatherND` of strings.

    tf2onnx, which converts the rest, writes `GatherND` for rows, which took 10 times as long for the relative positions
    of DeBERTa. It does not support axes that count from the end.
    """
    batch = node.get_attr_value("batch_dims", 0)
    axis = constant_value(graph, node.input[2])
    if batch < 0:
        batch += graph.get_rank(node.input[1])
        node.set_attr("batch_dims", batch)
    if batch and axis is not None and axis < 0:
        axis = np.array(axis + graph.get_rank(node.input[0]), np.int64)
        graph.replace_input(node, node.input[2], GraphBuilder(graph).constant(axis), 2)
    ranks = [graph.get_rank(name) for name in node.input[:2]]
    if batch and axis is not None and ranks == [batch + 1, batch + 1] and axis == batch:
        op = NodeReplacement(graph, node)
        op.finish("GatherElements", *op.inputs[:2], axis=batch)
    elif graph.get_dtype(node.input[0]) == TensorProto.STRING and not batch and axis is not None and None not in ranks:
        _gather_strings(NodeReplacement(graph, node), int(axis) % ranks[0], *ranks)
    else:
        convert_with_tf2onnx(graph, node)


def _gather_strings(op: NodeReplacement, axis: int, rank: int, index_rank: int) -> None:
    """Gather by `GatherND`: of contiguous rows, onnxruntime 1.32's `Gather` copies the first string only."""
    first = op.Transpose(op.inputs[0], perm=[axis, *range(axis), *range(axis + 1, rank)])
    indices = op.Unsqueeze(op.Cast(op.inputs[1], to=INT64), [-1])
    before = range(index_rank, index_rank + axis)
    behind = range(index_rank + axis, index_rank + rank - 1)
    op.finish("Transpose", op.GatherND(first, indices), perm=[*before, *range(index_rank), *behind])


def bucketize(graph: Any, node: Any) -> None:
    """Convert `Bucketize`: count the boundaries that a number is not less than; NaN is less than none.

    The boundaries are float32. TensorFlow compares integers with them as float32, and float64 as float64.
    """
    boundaries = np.array(node.get_attr_value("boundaries") or [], np.float32)
    is_double = graph.get_dtype(node.input[0]) == TensorProto.DOUBLE
    op = NodeReplacement(graph, node)
    column = op.Unsqueeze(op.Cast(*op.inputs, to=TensorProto.DOUBLE if is_double else TensorProto.FLOAT), [-1])
    below = op.Less(column, boundaries.astype("f8" if is_double else "f4"))
    _finish_count(op, op.Not(below))


def searchsorted(graph: Any, node: Any) -> None:
    """Convert `LowerBound` and `UpperBound` of (B, N) sorted numbers and (B, M) numbers to find."""
    op = NodeReplacement(graph, node)
    line, numbers = op.inputs
    row = op.Unsqueeze(line, [1])
    column = op.Unsqueeze(numbers, [2])
    _finish_count(op, op.Not(op.Less(column, row)) if node.type == "UpperBound" else op.Less(row, column))


def _finish_count(op: NodeReplacement, mask: str) -> None:
    """Write the number of true elements along the last axis."""
    op.finish("ReduceSum", op.Cast(mask, to=op.dtype), [-1], keepdims=0)
