"""Handler for `Atan2`, with IEEE 754 results for zeros and infinities.

tf2onnx's conversion returns an angle of 0 for points on an axis at infinity, and NaN for the ratio of two zeros or two
infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph_builder import NodeReplacement


def atan2(graph: Any, node: Any) -> None:
    """Convert `Atan2` of (y, x): the arc tangent of y / x, and half a turn more where x is negative, as -0.0 is.

    Of two infinities the ratio is that of their signs; of two zeros y is the arc.
    """
    op = NodeReplacement(graph, node)
    y, x = op.inputs
    zero = op.number(0)
    half_turn = op.number(np.pi)
    both_zero = op.And(op.Equal(y, zero), op.Equal(x, zero))
    both_infinite = op.And(*(op.Equal(op.Abs(tensor), op.number(np.inf)) for tensor in (y, x)))
    ratio = op.Where(both_infinite, op.Mul(op.Sign(y), op.Sign(x)), op.Div(y, x))
    # onnxruntime's Where keeps the sign of a zero only of its last input
    arc = op.Where(op.Not(both_zero), op.Atan(ratio), y)
    turned = op.Add(arc, op.Where(is_negative(op, y, zero), -half_turn, half_turn))
    op.finish("Where", is_negative(op, x, zero), turned, arc)


def is_negative(op: NodeReplacement, x: str, zero: np.ndarray) -> str:
    """Return whether numbers are below zero, or -0.0, whose reciprocal is below zero."""
    return op.Or(op.Less(x, zero), op.Less(op.Reciprocal(x), zero))
