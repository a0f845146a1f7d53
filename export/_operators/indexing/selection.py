"""Handlers that select or search elements: one-hot, top-k, argmax, gather, searchsorted."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason, constant_value
from ..kernel_dtypes import numpy_dtype

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
ZERO = np.float32(0)


def one_hot(graph: Any, node: Any) -> RejectionReason:
    """Convert `OneHot` of (indices, depth, on, off) to `Equal` with 0 to depth - 1."""
    # ONNX's `OneHot` counts negative indices from the end (onnx/onnx#4154), where TensorFlow selects no class
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


def finish_where(op: NodeReplacement, condition: str, if_true: str, if_false: str) -> None:
    """Write a selection, whose shapes broadcast, as the output; onnxruntime has `Where` of few dtypes."""
    if op.dtype == BOOL:
        op.finish("Or", op.And(condition, if_true), op.And(op.Not(condition), if_false))
    elif op.computation_dtype("Where") == op.dtype:
        op.finish("Where", condition, if_true, if_false)
    else:
        selected = op.Where(condition, op.widen(if_true, "Where"), op.widen(if_false, "Where"))
        op.finish("Cast", selected, to=op.dtype)


def top_k(graph: Any, node: Any) -> None:
    """Convert `TopKV2` of (x (..., N), k) to `TopK`; tf2onnx casts integers to float32, which is not exact."""
    op = NodeReplacement(graph, node)
    x = op.widen(op.inputs[0], "TopK")
    k = op.Reshape(op.Cast(op.inputs[1], to=INT64), [1])
    values, indices = op.multi_output("TopK", [True, True], x, k)
    op.finish("Cast", values, to=op.dtype)
    op.finish("Cast", indices, output=1, to=op.dtypes[1])


def arg_max_and_arg_min(graph: Any, node: Any) -> None:
    """Convert `ArgMax` and `ArgMin` with tf2onnx, after a cast of dtypes for which onnxruntime has no kernel."""
    if graph.get_dtype(node.input[0]) in (BOOL, TensorProto.INT16, TensorProto.UINT16):
        widened = GraphBuilder(graph).Cast(node.input[0], to=TensorProto.INT32)
        graph.replace_input(node, node.input[0], widened, 0)
    convert_with_tf2onnx(graph, node)


def in_top_k(graph: Any, node: Any) -> None:
    """Convert `InTopKV2` of (logits (B, C), classes (B,), k) to comparisons; tf2onnx has no mapping."""
    # True if fewer than k logits exceed that of the class; false if a logit is not finite or the class out of range
    op = NodeReplacement(graph, node)
    logits, ids, k = op.inputs
    classes = op.arange(op.dims(logits, 1))
    is_class = op.Equal(op.Unsqueeze(op.Cast(ids, to=INT64), [1]), classes)
    class_logit = op.ReduceSum(op.Where(is_class, logits, ZERO), [1], keepdims=1)
    num_above = op.ReduceSum(op.Cast(op.Greater(logits, class_logit), to=INT64), [1], keepdims=0)
    in_range = op.ReduceSum(op.Cast(is_class, to=INT64), [1], keepdims=0)
    is_finite = op.Equal(op.ReduceSum(op.Mul(logits, ZERO), [1], keepdims=0), ZERO)
    is_in_top = op.Less(num_above, op.Mul(op.Cast(k, to=INT64), in_range))
    op.finish("And", is_finite, is_in_top)


def broadcast_args(graph: Any, node: Any) -> RejectionReason:
    """Convert `BroadcastArgs` of two shapes (rank,) of known ranks to `Where`; the shorter one gets leading 1s."""
    ranks = [(graph.get_shape(name) or [-1])[0] for name in node.input]
    if min(ranks) < 0:
        return "the rank of one of its shapes is unknown"
    op = NodeReplacement(graph, node)
    ones = np.ones(abs(ranks[0] - ranks[1]), numpy_dtype(op.dtype))
    first, second = (
        op.Concat(ones, name, axis=0) if rank < max(ranks) else name
        for name, rank in zip(op.inputs, ranks, strict=True)
    )
    return op.finish("Where", op.Equal(first, op.number(1)), second, first)


def cross(graph: Any, node: Any) -> None:
    """Convert `Cross` of vectors (..., 3) to products: a[1, 2, 0] b[2, 0, 1] - a[2, 0, 1] b[1, 2, 0]."""
    op = NodeReplacement(graph, node)
    (a, a_next), (b, b_next) = (
        [op.Gather(vectors, indices, axis=-1) for indices in ([1, 2, 0], [2, 0, 1])] for vectors in op.inputs
    )
    op.finish("Sub", op.Mul(a, b_next), op.Mul(a_next, b))


def gather(graph: Any, node: Any) -> None:
    """Convert `GatherV2` of (data, indices, axis) to `GatherElements` if rows index their own elements."""
    # For such rows, (batch ..., N) and (batch ..., M), tf2onnx writes `GatherND`, which took 10 times as long for the
    # relative positions of DeBERTa. Strings become `GatherND`; tf2onnx converts the rest, without negative axes.
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
    """Gather strings by `GatherND`, with the axis moved to the front and back."""
    # `Gather` in onnxruntime 1.32 copies only the first string of each contiguous row
    transposed = op.Transpose(op.inputs[0], perm=[axis, *range(axis), *range(axis + 1, rank)])
    indices = op.Unsqueeze(op.Cast(op.inputs[1], to=INT64), [-1])
    axes_before = range(index_rank, index_rank + axis)
    axes_after = range(index_rank + axis, index_rank + rank - 1)
    op.finish("Transpose", op.GatherND(transposed, indices), perm=[*axes_before, *range(index_rank), *axes_after])


def bucketize(graph: Any, node: Any) -> None:
    """Convert `Bucketize` to the number of boundaries that an element is not less than; tf2onnx has no mapping."""
    # NaN is less than no boundary. Boundaries are float32; TensorFlow compares only float64 elements in float64
    boundaries = np.array(node.get_attr_value("boundaries") or [], np.float32)
    is_double = graph.get_dtype(node.input[0]) == TensorProto.DOUBLE
    op = NodeReplacement(graph, node)
    column = op.Unsqueeze(op.Cast(*op.inputs, to=TensorProto.DOUBLE if is_double else TensorProto.FLOAT), [-1])
    is_less = op.Less(column, boundaries.astype("f8" if is_double else "f4"))
    _finish_count(op, op.Not(is_less))


def searchsorted(graph: Any, node: Any) -> None:
    """Convert `LowerBound` and `UpperBound` of (sorted rows (B, N), values (B, M)) to counts (B, M); no mapping."""
    op = NodeReplacement(graph, node)
    sorted_rows, values = op.inputs
    row = op.Unsqueeze(sorted_rows, [1])
    column = op.Unsqueeze(values, [2])
    _finish_count(op, op.Not(op.Less(column, row)) if node.type == "UpperBound" else op.Less(row, column))


def _finish_count(op: NodeReplacement, mask: str) -> None:
    """Write the number of true elements along the last axis of a mask as the output."""
    op.finish("ReduceSum", op.Cast(mask, to=op.dtype), [-1], keepdims=0)
