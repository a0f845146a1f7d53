"""Handlers for `Bucketize`, `LowerBound`, `UpperBound`: count comparisons.

Each is a count of comparisons, exact as those are. What is left of a number is what it is not less than, so that NaN,
which is less than nothing, is past the last, as in TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import Replacement


def bucketize(graph: Any, node: Any) -> None:
    """`Bucketize`: how many boundaries each number is not less than.

    The boundaries are float32. TensorFlow compares integers with them as float32, and float64 as float64.
    """
    boundaries = np.array(node.get_attr_value("boundaries") or [], np.float32)
    kind = TensorProto.DOUBLE if graph.get_dtype(node.input[0]) == TensorProto.DOUBLE else TensorProto.FLOAT
    write = Replacement(graph, node)
    column = write("Unsqueeze", write("Cast", *write.inputs, to=kind), [-1])
    below = write("Less", column, boundaries.astype("f8" if kind == TensorProto.DOUBLE else "f4"))
    _count(write, write("Not", below))


def bound(graph: Any, node: Any) -> None:
    """`LowerBound` and `UpperBound`: (B, N) sorted numbers, (B, M) to be placed."""
    write = Replacement(graph, node)
    line, numbers = write.inputs
    row, column = write("Unsqueeze", line, [1]), write("Unsqueeze", numbers, [2])
    upper = node.type == "UpperBound"
    _count(write, write("Not", write("Less", column, row)) if upper else write("Less", row, column))


def _count(write: Replacement, chosen: str) -> None:
    """Write how many are chosen along the last axis."""
    write.last("ReduceSum", write("Cast", chosen, to=write.dtype), [-1], keepdims=0)
