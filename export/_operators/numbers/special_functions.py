"""Handlers for `Atan2`, `BesselI0`, `Log1p` and `Expm1`."""

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from onnx import TensorProto

from ..graph_builder import NodeReplacement, Refusal
from ..kernel_dtypes import FLOATS

_COMPLEX = "there is no form of it for complex numbers"


def atan2(graph: Any, node: Any) -> None:
    """Convert `Atan2` of (y, x): the arc tangent of y / x, and half a turn more where x is negative, as -0.0 is.

    tf2onnx's conversion returns 0 for points on an axis at infinity, and NaN for two zeros or two infinities. Of two
    infinities the ratio is that of their signs; of two zeros y is the arc.
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


def bessel_i0(graph: Any, node: Any) -> None:
    """Convert `BesselI0` to a Chebyshev series, times exp(|x|), with another series over sqrt(|x|) beyond 8.

    A series is sum c_k T_k(t) = sum c_k cos(k arccos t), with t = x / 4 - 1 up to 8 and t = 16 / x - 1 beyond.
    """
    interpolate: Any = chebinterpolate
    near = interpolate(lambda t: np.i0(4 * (t + 1)) * np.exp(-4 * (t + 1)), 17)
    beyond = interpolate(lambda t: np.i0(16 / (t + 1)) * np.exp(-16 / (t + 1)) * np.sqrt(16 / (t + 1)), 6)
    op = NodeReplacement(graph, node)
    x = op.Abs(op.Cast(*op.inputs, to=TensorProto.FLOAT))
    small = op.LessOrEqual(x, np.float32(8))
    t = op.Where(small, op.Div(x, np.float32(4)), op.Div(np.float32(16), x))
    angle = op.Acos(op.Sub(t, np.float32(1)))
    waves = op.Cos(op.Mul(op.Unsqueeze(angle, [-1]), np.arange(len(near), dtype=np.float32)))
    both = (near.astype("f4"), np.pad(beyond, (0, len(near) - len(beyond))).astype("f4"))
    coefficients = op.Where(op.Unsqueeze(small, [-1]), *both)
    series = op.ReduceSum(op.Mul(waves, coefficients), [-1], keepdims=0)
    scale = op.Where(small, np.float32(1), op.Sqrt(x))
    op.finish("Cast", op.Mul(op.Div(series, scale), op.Exp(x)), to=op.dtype)


def log1p(graph: Any, node: Any) -> Refusal:
    """Convert `Log1p` to `x * (log(u) / (u - 1))`, accurate near zero; infinity times 1 where the ratio is inf / inf.

    log(1 + x) as written loses the digits of a small x when it is added to 1. But u - 1 of the rounded u = 1 + x is
    exact: log(u) / (u - 1) is the right ratio for a neighbour of x, where it is nearly the same, and times x it is the
    result (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.14.1). At u = 1 its limit is 1.
    """
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Add(x, one)
    limit = op.Or(op.Equal(u, one), op.Equal(u, op.number(np.inf)))
    return op.finish("Mul", x, op.Where(limit, one, op.Div(op.Log(u), op.Sub(u, one))))


def expm1(graph: Any, node: Any) -> Refusal:
    """Convert `Expm1` to `x * ((u - 1) / log(u))` of u = exp(x), as `Log1p` the other way round.

    To u - 1 where x is not small and log(u) may be infinite.
    """
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
    return op.finish("Where", far, rest, op.Mul(x, ratio))
