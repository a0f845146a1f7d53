"""Handlers for scatter, segment reduction and bincount.

TensorFlow adds all rows with the same index, or reduces them by the operator; ONNX's `ScatterND` does so only with the
attribute `reduction`, which tf2onnx does not set, and counts negative indices from the end. Rows that TensorFlow drops
are scattered to an additional row, which is removed.
"""

import re
from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, constant_value
from ..kernel_dtypes import numpy_dtype

# The attribute `reduction`; "add" for all other operators
REDUCTIONS = {"Prod": "mul", "Max": "max", "Min": "min"}
SEGMENT_OP_PATTERN = re.compile("(Unsorted|Sparse|)Segment(Sum|Mean|SqrtN|Prod|Max|Min)(WithNumSegments|)")


def scatter_nd(graph: Any, node: Any) -> None:
    """Convert `ScatterNd` of (indices (..., K), updates, shape) to `ScatterND` into zeros."""
    constant = constant_value(graph, node.input[0])
    is_unique = constant is not None and len(_unique_rows(constant)) == constant[..., 0].size
    op = _Scatter(graph, node)
    indices, updates, shape = op.inputs
    zeros = op.full(0, op.as_int64(shape))
    op.finish_cast(op.scatter(zeros, indices, updates, "none" if is_unique else "add"), "ScatterND")


def _unique_rows(indices: np.ndarray) -> np.ndarray:
    """Return the different rows of indices (..., K): (rows, K)."""
    return np.unique(indices.reshape(-1, indices.shape[-1]), axis=0)


def sparse_to_dense(graph: Any, node: Any) -> None:
    """Convert `SparseToDense` of (indices (N,) or (N, rank), shape, values (N,) or (), default) to `ScatterND`."""
    is_vector = graph.get_rank(node.input[0]) != 2
    is_scalar = graph.get_rank(node.input[2]) == 0
    op = _Scatter(graph, node)
    indices, shape, updates, default = op.inputs
    indices = op.Reshape(indices, [-1, 1]) if is_vector else indices
    updates = op.Expand(updates, op.dims(indices, end=-1)) if is_scalar else updates
    table = op.Expand(op.widen(default, "ScatterND"), op.as_int64(shape))
    op.finish_cast(op.scatter(table, indices, updates, "none"), "ScatterND")


def tensor_scatter(graph: Any, node: Any) -> None:
    """Convert `TensorScatterAdd`, `-Sub`, `-Max` and `-Min` of (tensor, indices, updates) to `ScatterND`."""
    reduction = node.type.removeprefix("TensorScatter")
    op = _Scatter(graph, node)
    table, indices, updates = op.inputs
    updates = op.widen(updates, "ScatterND")
    if reduction == "Sub":
        updates = op.Neg(updates)
    result = op.ScatterND(
        op.widen(table, "ScatterND"), op.as_int64(indices), updates, reduction=REDUCTIONS.get(reduction, "add")
    )
    op.finish_cast(result, "ScatterND")


def segment_reduction(graph: Any, node: Any) -> None:
    """Convert reductions of segments, as `SegmentSum`, `UnsortedSegmentMax`, `SparseSegmentMean`, to `ScatterND`."""
    # Inputs are data (N, ...), for Sparse indices of its rows, ids, and in some operators the number of segments. Empty
    # segments of sorted ids are zero; those of unsorted ids are the neutral element of the reduction.
    prefix, reduction, _ = SEGMENT_OP_PATTERN.fullmatch(node.type).groups()  # type: ignore[union-attr]
    ids_index = 2 if prefix == "Sparse" else 1
    constant = constant_value(graph, node.input[ids_index])
    rank = graph.get_rank(node.input[ids_index])
    op = _Scatter(graph, node)
    data, ids, *count = op.inputs[:1] + op.inputs[ids_index:]
    if prefix == "Sparse":
        data = op.Gather(data, op.inputs[1], axis=0)
    data = op.widen(data, "ScatterND")
    ids = op.as_int64(ids)
    if count:
        num_rows = op.Reshape(op.as_int64(count[0]), [-1])
    else:
        num_rows = op.Add(op.ReduceMax(op.Concat([-1], ids, axis=0), [0], keepdims=1), [1])
    # Rows with negative ids, which TensorFlow drops: -1 is the additional last row
    may_drop_rows = prefix == "Unsorted" and (constant is None or (constant < 0).any())
    if may_drop_rows:
        num_rows = op.Add(num_rows, [1])
        ids = op.Max(ids, [-1])
    shape = op.Concat(num_rows, op.dims(data, rank), axis=0)
    indices = op.Unsqueeze(ids, [-1])
    table = op.full(_neutral_element(reduction, prefix, op.dtype), shape)
    result = op.ScatterND(table, op.as_int64(indices), data, reduction=REDUCTIONS.get(reduction, "add"))
    if reduction in ("Mean", "SqrtN") or (reduction in ("Max", "Min") and prefix != "Unsorted"):
        ones = op.full(1, op.Shape(data))
        counts = op.ScatterND(op.full(0, shape), op.as_int64(indices), ones, reduction="add")
        if reduction in REDUCTIONS:
            zero = op.cast_number(0)
            result = op.Where(op.Equal(counts, zero), zero, result)
        else:
            counts = op.Max(counts, op.cast_number(1))
            result = op.Div(result, op.Sqrt(counts) if reduction == "SqrtN" else counts)
    op.finish_cast(op.Slice(result, [0], [-1], [0]) if may_drop_rows else result, "ScatterND")


def _neutral_element(reduction: str, prefix: str, elem_type: int) -> Any:
    """Return the start value of a reduction; for Max and Min infinite with sorted ids, finite with unsorted ids."""
    if reduction not in ("Max", "Min"):
        return int(reduction == "Prod")
    dtype = numpy_dtype(elem_type)
    if dtype.kind == "f" and prefix != "Unsorted":
        return -np.inf if reduction == "Max" else np.inf
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min if reduction == "Max" else limits.max


def bincount(graph: Any, node: Any) -> None:
    """Convert `Bincount` and `DenseBincount` of (values (..., N), size, weights) to `ScatterElements`: (..., size)."""
    # Values of at least `size` are counted in an additional bin. tf2onnx has no weights (onnx/tensorflow-onnx#1400)
    shape = graph.get_shape(node.input[2])
    is_binary = bool(node.get_attr_value("binary_output", False))
    op = _Scatter(graph, node)
    values, size, weights = op.inputs
    values = op.as_int64(values)
    size = op.Reshape(op.as_int64(size), [1])
    bins = op.Concat(op.dims(values, end=-1), op.Add(size, [1]), axis=0)
    has_weights = shape is not None and 0 not in shape and not is_binary
    updates = op.widen(weights, "ScatterND") if has_weights else op.full(1, op.Shape(values))
    options: dict[str, Any] = {"axis": -1, "reduction": "none" if is_binary else "add"}
    counts = op.ScatterElements(op.full(0, bins), op.Min(values, size), updates, **options)
    op.finish_cast(op.Slice(counts, [0], [-1], [-1]), "ScatterND")


class _Scatter(NodeReplacement):
    """Builder of scatters in a dtype for which onnxruntime has reductions."""

    def cast_number(self, value: Any) -> np.ndarray:
        """Return a constant of the element type to scatter in."""
        return np.array(value, numpy_dtype(self.computation_dtype("ScatterND")))

    def as_int64(self, tensor: str) -> str:
        """Return a tensor cast to int64."""
        return self.Cast(tensor, to=TensorProto.INT64)

    def full(self, value: Any, shape: str) -> str:
        """Return a tensor with one repeated number."""
        return self.Expand(self.cast_number(value), shape)

    def scatter(self, table: str, indices: str, updates: str, reduction: str) -> str:
        """Scatter updates (..., rest) into a table at indices (..., K)."""
        return self.ScatterND(table, self.as_int64(indices), self.widen(updates, "ScatterND"), reduction=reduction)
