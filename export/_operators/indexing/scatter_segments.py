"""Handlers for scatter, segment reduction and bincount.

TensorFlow adds rows of one index, or reduces them as the operator says; ONNX needs the attribute `reduction`, and
counts negative indices from the end. Rows that TensorFlow drops are scattered to an additional row, which is cut off.
"""

import re
from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, constant_value
from ..kernel_dtypes import numpy_dtype

REDUCTIONS = {"Prod": "mul", "Max": "max", "Min": "min"}  # all others add
SEGMENT_OP_PATTERN = re.compile("(Unsorted|Sparse|)Segment(Sum|Mean|SqrtN|Prod|Max|Min)(WithNumSegments|)")


def scatter_nd(graph: Any, node: Any) -> None:
    """Convert `ScatterNd`: scatter into zeros."""
    constant = constant_value(graph, node.input[0])
    is_unique = constant is not None and len(_unique_rows(constant)) == constant[..., 0].size
    op = _Scatter(graph, node)
    indices, updates, shape = op.inputs
    zeros = op.full(0, op.as_int64(shape))
    op.finish_cast(op.scatter(zeros, indices, updates, "none" if is_unique else "add"), "ScatterND")


def _unique_rows(indices: np.ndarray) -> np.ndarray:
    return np.unique(indices.reshape(-1, indices.shape[-1]), axis=0)


def sparse_to_dense(graph: Any, node: Any) -> None:
    """Convert `SparseToDense`: scatter numbers, or one number, into a default; indices may be (N,) or (N, rank)."""
    is_line = graph.get_rank(node.input[0]) != 2
    is_one = graph.get_rank(node.input[2]) == 0
    op = _Scatter(graph, node)
    indices, shape, updates, default = op.inputs
    indices = op.Reshape(indices, [-1, 1]) if is_line else indices
    updates = op.Expand(updates, op.dims(indices, end=-1)) if is_one else updates
    table = op.Expand(op.widen(default, "ScatterND"), op.as_int64(shape))
    op.finish_cast(op.scatter(table, indices, updates, "none"), "ScatterND")


def tensor_scatter(graph: Any, node: Any) -> None:
    """Convert `TensorScatterAdd`, `TensorScatterSub`, `TensorScatterMax` and `TensorScatterMin`."""
    kind = node.type.removeprefix("TensorScatter")
    op = _Scatter(graph, node)
    table, indices, updates = op.inputs
    updates = op.widen(updates, "ScatterND")
    if kind == "Sub":
        updates = op.Neg(updates)
    result = op.ScatterND(
        op.widen(table, "ScatterND"), op.as_int64(indices), updates, reduction=REDUCTIONS.get(kind, "add")
    )
    op.finish_cast(result, "ScatterND")


def segment_reduction(graph: Any, node: Any) -> None:
    """Convert reductions of segments: `SegmentSum`, `UnsortedSegmentMax`, `SparseSegmentMean` and so on.

    Empty segments of sorted ids are zero, those of unsorted ids the neutral element of the reduction.
    """
    prefix, kind, _ = SEGMENT_OP_PATTERN.fullmatch(node.type).groups()  # type: ignore[union-attr]
    first = 2 if prefix == "Sparse" else 1  # the input with the ids
    constant = constant_value(graph, node.input[first])
    rank = graph.get_rank(node.input[first])
    op = _Scatter(graph, node)
    data, ids, *count = op.inputs[:1] + op.inputs[first:]
    if prefix == "Sparse":
        data = op.Gather(data, op.inputs[1], axis=0)
    data = op.widen(data, "ScatterND")
    ids = op.as_int64(ids)
    if count:
        rows = op.Reshape(op.as_int64(count[0]), [-1])
    else:
        rows = op.Add(op.ReduceMax(op.Concat([-1], ids, axis=0), [0], keepdims=1), [1])
    has_dropped = prefix == "Unsorted" and (constant is None or (constant < 0).any())
    if has_dropped:
        rows = op.Add(rows, [1])
        ids = op.Max(ids, [-1])
    shape = op.Concat(rows, op.dims(data, rank), axis=0)
    indices = op.Unsqueeze(ids, [-1])
    table = op.full(_neutral_element(kind, prefix, op.dtype), shape)
    result = op.ScatterND(table, op.as_int64(indices), data, reduction=REDUCTIONS.get(kind, "add"))
    if kind in ("Mean", "SqrtN") or (kind in ("Max", "Min") and prefix != "Unsorted"):
        ones = op.full(1, op.Shape(data))
        counts = op.ScatterND(op.full(0, shape), op.as_int64(indices), ones, reduction="add")
        if kind in REDUCTIONS:
            zero = op.cast_number(0)
            result = op.Where(op.Equal(counts, zero), zero, result)
        else:
            counts = op.Max(counts, op.cast_number(1))
            result = op.Div(result, op.Sqrt(counts) if kind == "SqrtN" else counts)
    op.finish_cast(op.Slice(result, [0], [-1], [0]) if has_dropped else result, "ScatterND")


def _neutral_element(kind: str, prefix: str, elem_type: int) -> Any:
    """Return the number that a reduction starts with: infinite for sorted ids, finite for unsorted ids."""
    if kind not in ("Max", "Min"):
        return int(kind == "Prod")
    dtype = numpy_dtype(elem_type)
    if dtype.kind == "f" and prefix != "Unsorted":
        return -np.inf if kind == "Max" else np.inf
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min if kind == "Max" else limits.max


def bincount(graph: Any, node: Any) -> None:
    """Convert `Bincount` and `DenseBincount` along the last axis; numbers beyond the size are not counted."""
    shape = graph.get_shape(node.input[2])
    is_binary = bool(node.get_attr_value("binary_output", False))
    op = _Scatter(graph, node)
    numbers, size, weights = op.inputs
    numbers = op.as_int64(numbers)
    size = op.Reshape(op.as_int64(size), [1])
    bins = op.Concat(op.dims(numbers, end=-1), op.Add(size, [1]), axis=0)
    has_weights = shape is not None and 0 not in shape and not is_binary
    updates = op.widen(weights, "ScatterND") if has_weights else op.full(1, op.Shape(numbers))
    options: dict[str, Any] = {"axis": -1, "reduction": "none" if is_binary else "add"}
    counts = op.ScatterElements(op.full(0, bins), op.Min(numbers, size), updates, **options)
    op.finish_cast(op.Slice(counts, [0], [-1], [-1]), "ScatterND")


class _Scatter(NodeReplacement):
    """Builds scatters in a dtype in which onnxruntime reduces."""

    def cast_number(self, value: Any) -> np.ndarray:
        """Return a constant of the element type to compute in."""
        return np.array(value, numpy_dtype(self.computation_dtype("ScatterND")))

    def as_int64(self, tensor: str) -> str:
        """Return a tensor cast to int64."""
        return self.Cast(tensor, to=TensorProto.INT64)

    def full(self, value: Any, shape: str) -> str:
        """Return a tensor of one repeated number."""
        return self.Expand(self.cast_number(value), shape)

    def scatter(self, table: str, indices: str, updates: str, reduction: str) -> str:
        """Return a table with rows reduced into it."""
        return self.ScatterND(table, self.as_int64(indices), self.widen(updates, "ScatterND"), reduction=reduction)
