"""Handlers for `Log1p` and `Expm1`, accurate near zero.

log(1 + x) and exp(x) - 1 as written lose the digits of a small x when it is added to 1. But u - 1 of the rounded
u = 1 + x is exact: log(u) / (u - 1) is the right ratio for a neighbour of x, where it is nearly the same, and times x
it is the result. The other way round for u = exp(x), whose x is log(u) (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, section 1.14.1). At u = 1 both ratios are 0 / 0, and their limit is 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph_builder import NodeReplacement
from ..kernel_dtypes import FLOATS

_COMPLEX = "there is no form of it for complex numbers"


def log1p(graph: Any, node: Any) -> str | None:
    """Convert `Log1p` to `x * (log(u) / (u - 1))`; infinity times 1 where the ratio is inf / inf."""
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Add(x, one)
    limit = op.Or(op.Equal(u, one), op.Equal(u, op.number(np.inf)))
    op.finish("Mul", x, op.Where(limit, one, op.Div(op.Log(u), op.Sub(u, one))))
    return None


def expm1(graph: Any, node: Any) -> str | None:
    """Convert `Expm1` to `x * ((u - 1) / log(u))`; to u - 1 where x is not small and log(u) may be infinite."""
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Exp(x)
    rest = op.Sub(u, one)
    ratio = op.Where(op.Equal(u, one), one, op.Div(rest, op.Log(u)))
    far = op.Or(op.Equal(rest, -one), op.Equal(u, op.number(np.inf)))
    # onnxruntime's Where keeps the sign of a zero only of its last input
    op.finish("Where", far, rest, op.Mul(x, ratio))
    return None
