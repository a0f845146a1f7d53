"""Handlers for elementwise functions without an ONNX operator: `Atan2`, `BesselI0`, `Log1p` and `Expm1`."""

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from onnx import TensorProto

from ..graph_builder import NodeReplacement, RejectionReason
from ..kernel_dtypes import FLOATS

_COMPLEX = "complex numbers are not supported"


def atan2(graph: Any, node: Any) -> None:
    """Convert `Atan2` of (y, x), whose shapes broadcast, to `Atan` of y / x, plus or minus pi if x is negative."""
    # tf2onnx's result is 0 for points on an axis at infinity, and NaN for two zeros or two infinities. Here -0.0 is
    # negative, y / x of two infinities is the ratio of their signs, and the arc of two zeros is y.
    op = NodeReplacement(graph, node)
    y, x = op.inputs
    zero = op.number(0)
    half_turn = op.number(np.pi)
    both_zero = op.And(op.Equal(y, zero), op.Equal(x, zero))
    both_infinite = op.And(*(op.Equal(op.Abs(tensor), op.number(np.inf)) for tensor in (y, x)))
    ratio = op.Where(both_infinite, op.Mul(op.Sign(y), op.Sign(x)), op.Div(y, x))
    # onnxruntime's `Where` keeps the sign of a zero only of its last input
    angle = op.Where(op.Not(both_zero), op.Atan(ratio), y)
    opposite_angle = op.Add(angle, op.Where(is_negative(op, y, zero), -half_turn, half_turn))
    op.finish("Where", is_negative(op, x, zero), opposite_angle, angle)


def is_negative(op: NodeReplacement, x: str, zero: np.ndarray) -> str:
    """Write a mask of the negative elements of x, including -0.0, whose reciprocal is negative."""
    return op.Or(op.Less(x, zero), op.Less(op.Reciprocal(x), zero))


def bessel_i0(graph: Any, node: Any) -> None:
    """Convert `BesselI0` to one of two Chebyshev series times exp(|x|), in float32; tf2onnx has no mapping."""
    # I0(x) exp(-|x|) = sum c_k T_k(|x| / 4 - 1) for |x| <= 8, and sum d_k T_k(16 / |x| - 1) / sqrt(|x|) beyond, where
    # T_k(t) = cos(k arccos t). Coefficients interpolate NumPy's i0 at Chebyshev nodes; degrees 17 and 6 trade the
    # number of elements, 18 per input element, for accuracy.
    interpolate: Any = chebinterpolate
    small_series = interpolate(lambda t: np.i0(4 * (t + 1)) * np.exp(-4 * (t + 1)), 17)
    large_series = interpolate(lambda t: np.i0(16 / (t + 1)) * np.exp(-16 / (t + 1)) * np.sqrt(16 / (t + 1)), 6)
    op = NodeReplacement(graph, node)
    x = op.Abs(op.Cast(*op.inputs, to=TensorProto.FLOAT))
    is_small = op.LessOrEqual(x, np.float32(8))
    t = op.Where(is_small, op.Div(x, np.float32(4)), op.Div(np.float32(16), x))
    angle = op.Acos(op.Sub(t, np.float32(1)))
    waves = op.Cos(op.Mul(op.Unsqueeze(angle, [-1]), np.arange(len(small_series), dtype=np.float32)))
    padded = np.pad(large_series, (0, len(small_series) - len(large_series)))
    coefficients = op.Where(op.Unsqueeze(is_small, [-1]), small_series.astype("f4"), padded.astype("f4"))
    series = op.ReduceSum(op.Mul(waves, coefficients), [-1], keepdims=0)
    scale = op.Where(is_small, np.float32(1), op.Sqrt(x))
    op.finish("Cast", op.Mul(op.Div(series, scale), op.Exp(x)), to=op.dtype)


def log1p(graph: Any, node: Any) -> RejectionReason:
    """Convert `Log1p` to `x * (log(u) / (u - 1))` with u = 1 + x; tf2onnx has no mapping."""
    # log(1 + x) loses the digits of a small x when x is added to 1. But for the rounded u = 1 + x, u - 1 is exact, and
    # log(u) / (u - 1) is the right ratio at a neighbour of x, where it is nearly the same (Higham, Accuracy and
    # Stability of Numerical Algorithms, 2002, section 1.14.1). The ratio is 1 at u = 1, its limit, and for infinite u.
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Add(x, one)
    is_limit = op.Or(op.Equal(u, one), op.Equal(u, op.number(np.inf)))
    return op.finish("Mul", x, op.Where(is_limit, one, op.Div(op.Log(u), op.Sub(u, one))))


def expm1(graph: Any, node: Any) -> RejectionReason:
    """Convert `Expm1` to `x * ((u - 1) / log(u))` with u = exp(x); tf2onnx has no mapping."""
    # The inverse of `log1p` (Higham, see above). If u is 0 after rounding, or infinite, so is log(u): then u - 1
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Exp(x)
    difference = op.Sub(u, one)
    ratio = op.Where(op.Equal(u, one), one, op.Div(difference, op.Log(u)))
    is_extreme = op.Or(op.Equal(difference, -one), op.Equal(u, op.number(np.inf)))
    # onnxruntime's `Where` keeps the sign of a zero only of its last input
    return op.finish("Where", is_extreme, difference, op.Mul(x, ratio))
