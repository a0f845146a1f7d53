"""Handlers for scatter, segment reduction and bincount.

Where several are put into one row, TensorFlow adds them, or does what the operator says; ONNX does where `reduction`
says so, and counts negative numbers from the end. What TensorFlow drops goes into one more row, which is cut off.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from ..graph_builder import Replacement, constant_of

REDUCED = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64}  # by onnxruntime
REDUCTIONS = {"Prod": "mul", "Max": "max", "Min": "min"}  # all others add
SEGMENTS = re.compile("(Unsorted|Sparse|)Segment(Sum|Mean|SqrtN|Prod|Max|Min)(WithNumSegments|)")


def scatter(graph: Any, node: Any) -> None:
    """`ScatterNd`: into zeros."""
    known = constant_of(graph, node.input[0])
    once = known is not None and len(np.unique(known.reshape(-1, known.shape[-1]), axis=0)) == known[..., 0].size
    write = _Rows(graph, node)
    places, updates, shape = write.inputs
    zeros = write.filled(0, write.whole(shape))
    write.end(write.put(zeros, places, write.wide(updates), "none" if once else "add"))


def dense(graph: Any, node: Any) -> None:
    """`SparseToDense`: into what is there elsewhere; one number may be put everywhere, and places may be numbers."""
    is_line, is_one = graph.get_rank(node.input[0]) != 2, graph.get_rank(node.input[2]) == 0
    write = _Rows(graph, node)
    places, shape, updates, other = write.inputs
    places = write("Reshape", places, [-1, 1]) if is_line else places
    updates = write("Expand", updates, write.sizes(places, end=-1)) if is_one else updates
    table = write("Expand", write.wide(other), write.whole(shape))
    write.end(write.put(table, places, write.wide(updates), "none"))


def scatter_into(graph: Any, node: Any) -> None:
    """`TensorScatterAdd`, `TensorScatterSub`, `TensorScatterMax` and `TensorScatterMin`."""
    kind = node.type.removeprefix("TensorScatter")
    write = _Rows(graph, node)
    table, places, updates = write.inputs
    updates = write.wide(updates)
    if kind == "Sub":
        updates = write("Neg", updates)
    write.end(write.put(write.wide(table), places, updates, REDUCTIONS.get(kind, "add")))


def segments(graph: Any, node: Any) -> None:
    """All kinds of segments: those of sorted numbers have zeros where nothing is, others the start of their kind."""
    prefix, kind, _ = SEGMENTS.fullmatch(node.type).groups()  # type: ignore[union-attr]
    number = 2 if prefix == "Sparse" else 1
    known, axes = constant_of(graph, node.input[number]), graph.get_rank(node.input[number])
    write = _Rows(graph, node)
    data, ids, *count = write.inputs[:1] + write.inputs[number:]
    if prefix == "Sparse":
        data = write("Gather", data, write.inputs[1], axis=0)
    data, ids = write.wide(data), write.whole(ids)
    if count:
        rows = write("Reshape", write.whole(count[0]), [-1])
    else:
        rows = write("Add", write("ReduceMax", write("Concat", [-1], ids, axis=0), [0], keepdims=1), [1])
    drops = prefix == "Unsorted" and (known is None or (known < 0).any())
    if drops:
        rows, ids = write("Add", rows, [1]), write("Max", ids, [-1])
    shape = write("Concat", rows, write.sizes(data, axes), axis=0)
    places = write("Unsqueeze", ids, [-1])
    found = write.put(write.filled(write.start(kind, prefix), shape), places, data, REDUCTIONS.get(kind, "add"))
    if kind in ("Mean", "SqrtN") or (kind in ("Max", "Min") and prefix != "Unsorted"):
        ones = write.filled(1, write("Shape", data))
        counts = write.put(write.filled(0, shape), places, ones, "add")
        if kind in REDUCTIONS:
            found = write("Where", write("Equal", counts, write.number(0)), write.number(0), found)
        else:
            counts = write("Max", counts, write.number(1))
            found = write("Div", found, write("Sqrt", counts) if kind == "SqrtN" else counts)
    write.end(write("Slice", found, [0], [-1], [0]) if drops else found)


def counts(graph: Any, node: Any) -> None:
    """`Bincount` and `DenseBincount`: along the last axis; numbers beyond the size are not counted."""
    shape, binary = graph.get_shape(node.input[2]), node.get_attr_value("binary_output", False)
    write = _Rows(graph, node)
    numbers, size, weights = write.inputs
    numbers, size = write.whole(numbers), write("Reshape", write.whole(size), [1])
    rows = write("Concat", write.sizes(numbers, end=-1), write("Add", size, [1]), axis=0)
    weighs = shape is not None and 0 not in shape and not binary
    each = write.wide(weights) if weighs else write.filled(1, write("Shape", numbers))
    options: dict[str, Any] = {"axis": -1, "reduction": "none" if binary else "add"}
    found = write("ScatterElements", write.filled(0, rows), write("Min", numbers, size), each, **options)
    write.end(write("Slice", found, [0], [-1], [-1]))


class _Rows(Replacement):
    """Writes rows in a dtype that onnxruntime reduces."""

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(graph, node)
        self._own = np.dtype(tensor_dtype_to_np_dtype(self.dtype))
        self._kind = self.dtype
        if self.dtype not in REDUCED:
            self._kind = TensorProto.FLOAT if self._own.kind == "f" else TensorProto.INT64
        self._wide = np.dtype(tensor_dtype_to_np_dtype(self._kind))

    def number(self, value: Any) -> np.ndarray:
        return np.array(value, self._wide)

    def start(self, kind: str, prefix: str) -> Any:
        """Return what stands in a row before something is put there."""
        if kind not in ("Max", "Min"):
            return int(kind == "Prod")
        if self._own.kind == "f" and prefix != "Unsorted":
            return -np.inf if kind == "Max" else np.inf
        limits: Any = np.finfo(self._own) if self._own.kind == "f" else np.iinfo(self._own)
        return limits.min if kind == "Max" else limits.max

    def wide(self, tensor: str) -> str:
        return tensor if self._kind == self.dtype else self("Cast", tensor, to=self._kind)

    def whole(self, numbers: str) -> str:
        return self("Cast", numbers, to=TensorProto.INT64)

    def filled(self, value: Any, shape: str) -> str:
        return self("Expand", self.number(value), shape)

    def put(self, table: str, places: str, updates: str, reduction: str) -> str:
        return self("ScatterND", table, self.whole(places), updates, reduction=reduction)

    def end(self, found: str) -> None:
        if self._kind == self.dtype:
            self.last("Identity", found)
        else:
            self.last("Cast", found, to=self.dtype)
