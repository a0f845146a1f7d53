"""Handlers for `Bucketize`, `LowerBound`, `UpperBound`: count comparisons.

A boundary counts if the number is not less than the boundary. NaN is not less than any number, so its index is past the
last, as in TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement


def bucketize(graph: Any, node: Any) -> None:
    """Convert `Bucketize`: count the boundaries that a number is not less than.

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
