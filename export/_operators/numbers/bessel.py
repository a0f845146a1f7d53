"""Handler for `BesselI0`, by Chebyshev series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from onnx import TensorProto

from ..graph_builder import NodeReplacement

FLOAT = TensorProto.FLOAT
ONE = np.float32(1)


def bessel_i0(graph: Any, node: Any) -> None:
    """Convert `BesselI0` to a Chebyshev series, times exp(|x|), with another series over sqrt(|x|) beyond 8.

    A series is sum c_k T_k(t) = sum c_k cos(k arccos t), with t = x / 4 - 1 up to 8 and t = 16 / x - 1 beyond.
    """
    interpolate: Any = chebinterpolate
    near = interpolate(lambda t: np.i0(4 * (t + 1)) * np.exp(-4 * (t + 1)), 17)
    beyond = interpolate(lambda t: np.i0(16 / (t + 1)) * np.exp(-16 / (t + 1)) * np.sqrt(16 / (t + 1)), 6)
    op = NodeReplacement(graph, node)
    x = op.Abs(op.Cast(*op.inputs, to=FLOAT))
    small = op.LessOrEqual(x, np.float32(8))
    t = op.Where(small, op.Div(x, np.float32(4)), op.Div(np.float32(16), x))
    angle = op.Acos(op.Sub(t, ONE))
    waves = op.Cos(op.Mul(op.Unsqueeze(angle, [-1]), np.arange(len(near), dtype=np.float32)))
    both = (near.astype("f4"), np.pad(beyond, (0, len(near) - len(beyond))).astype("f4"))
    coefficients = op.Where(op.Unsqueeze(small, [-1]), *both)
    series = op.ReduceSum(op.Mul(waves, coefficients), [-1], keepdims=0)
    scale = op.Where(small, ONE, op.Sqrt(x))
    op.finish("Cast", op.Mul(op.Div(series, scale), op.Exp(x)), to=op.dtype)
