"""Handlers for elementwise functions without an ONNX operator: `Atan2`, `BesselI0`, `Log1p` and `Expm1`."""

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from onnx import TensorProto

from ..graph_builder import NodeReplacement, RejectionReason
from ..kernel_dtypes import FLOATS

_COMPLEX_REJECTION = "complex numbers are not supported"


def atan2(graph: Any, node: Any) -> None:
    """Convert `Atan2` of (y, x), whose shapes broadcast, to `Atan` of y / x. If x is negative, add or subtract pi."""
    # tf2onnx's conversion ignores the signs of zeros, and returns NaN for two infinities. Here -0.0 counts as negative.
    # The ratio of two infinities is the product of their signs. The angle of two zeros is y before pi is added.
    op = NodeReplacement(graph, node)
    y, x = op.inputs
    zero = op.number(0)
    half_turn = op.number(np.pi)
    both_zero = op.And(op.Equal(y, zero), op.Equal(x, zero))
    both_infinite = op.And(*(op.Equal(op.Abs(tensor), op.number(np.inf)) for tensor in (y, x)))
    ratio = op.Where(both_infinite, op.Mul(op.Sign(y), op.Sign(x)), op.Div(y, x))
    # y is the third input of `Where`, since onnxruntime changes -0.0 to +0.0 in the elements of the second input
    angle = op.Where(op.Not(both_zero), op.Atan(ratio), y)
    opposite_angle = op.Add(angle, op.Where(is_negative(op, y, zero), -half_turn, half_turn))
    op.finish("Where", is_negative(op, x, zero), opposite_angle, angle)


def is_negative(op: NodeReplacement, x: str, zero: np.ndarray) -> str:
    """Write a mask that is True for negative elements of x. It is True for -0.0 too, whose reciprocal is negative."""
    return op.Or(op.Less(x, zero), op.Less(op.Reciprocal(x), zero))


def bessel_i0(graph: Any, node: Any) -> None:
    """Convert `BesselI0` to exp(|x|) times one of two Chebyshev series, in float32. tf2onnx has no mapping for it."""
    # I0(x) exp(-|x|) is sum c_k T_k(|x| / 4 - 1) for |x| <= 8, else sum d_k T_k(16 / |x| - 1) / sqrt(|x|), where
    # T_k(t) = cos(k arccos t). The coefficients interpolate NumPy's i0 at Chebyshev nodes. Degrees above 17 and 6
    # would lower the error, but need more memory: the products below already have 18 elements per input element.
    interpolate: Any = chebinterpolate  # NumPy's stub rejects functions that return arrays
    small_x_coefs = interpolate(lambda t: np.i0(4 * (t + 1)) * np.exp(-4 * (t + 1)), 17)
    large_x_coefs = interpolate(lambda t: np.i0(16 / (t + 1)) * np.exp(-16 / (t + 1)) * np.sqrt(16 / (t + 1)), 6)
    op = NodeReplacement(graph, node)
    x = op.Abs(op.Cast(*op.inputs, to=TensorProto.FLOAT))
    is_small = op.LessOrEqual(x, np.float32(8))
    t = op.Where(is_small, op.Div(x, np.float32(4)), op.Div(np.float32(16), x))
    angle = op.Acos(op.Sub(t, np.float32(1)))
    polynomials = op.Cos(op.Mul(op.Unsqueeze(angle, [-1]), np.arange(len(small_x_coefs), dtype=np.float32)))
    padded_coefs = np.pad(large_x_coefs, (0, len(small_x_coefs) - len(large_x_coefs)))
    coefficients = op.Where(op.Unsqueeze(is_small, [-1]), small_x_coefs.astype("f4"), padded_coefs.astype("f4"))
    chebyshev_sum = op.ReduceSum(op.Mul(polynomials, coefficients), [-1], keepdims=0)
    scale = op.Where(is_small, np.float32(1), op.Sqrt(x))
    op.finish("Cast", op.Mul(op.Div(chebyshev_sum, scale), op.Exp(x)), to=op.dtype)


def log1p(graph: Any, node: Any) -> RejectionReason:
    """Convert `Log1p` to `x * (log(u) / (u - 1))` with u = 1 + x. tf2onnx has no mapping for it."""
    # 1 + x loses the digits of a small x. But z = u - 1 is exact for the rounded u. So log(u) / (u - 1) is
    # log(1 + z) / z at a z near x, and this ratio is almost the same for x (Higham, Accuracy and Stability of Numerical
    # Algorithms, 2002, section 1.14.1). For u = 1 the ratio is replaced by its limit 1, for u = infinity by 1 too.
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX_REJECTION
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Add(x, one)
    is_limit = op.Or(op.Equal(u, one), op.Equal(u, op.number(np.inf)))
    return op.finish("Mul", x, op.Where(is_limit, one, op.Div(op.Log(u), op.Sub(u, one))))


def expm1(graph: Any, node: Any) -> RejectionReason:
    """Convert `Expm1` to `x * ((u - 1) / log(u))` with u = exp(x). tf2onnx has no mapping for it."""
    # The ratio is the inverse of the one in `log1p` (see there). For u = 0 or infinity, log(u) is infinite, so the
    # product would be 0 or NaN. If u is infinite, or so small that u - 1 rounds to -1, the result is u - 1 itself.
    if node.output_dtypes[0] not in FLOATS:
        return _COMPLEX_REJECTION
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    one = op.number(1)
    u = op.Exp(x)
    difference = op.Sub(u, one)
    ratio = op.Where(op.Equal(u, one), one, op.Div(difference, op.Log(u)))
    is_extreme = op.Or(op.Equal(difference, -one), op.Equal(u, op.number(np.inf)))
    # The product is the third input, the only one in which onnxruntime's `Where` keeps the sign of -0.0
    return op.finish("Where", is_extreme, difference, op.Mul(x, ratio))
