"""Handler for `BesselI0`, by Chebyshev series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from onnx import TensorProto

from ..graph_builder import Replacement

FLOAT = TensorProto.FLOAT
ONE = np.float32(1)


def bessel(graph: Any, node: Any) -> None:
    """`BesselI0`: a Chebyshev series up to 8 and one beyond, times exp(|x|), over the root of |x| beyond."""
    interpolate: Any = chebinterpolate
    near = interpolate(lambda t: np.i0(4 * (t + 1)) * np.exp(-4 * (t + 1)), 17)
    beyond = interpolate(lambda t: np.i0(16 / (t + 1)) * np.exp(-16 / (t + 1)) * np.sqrt(16 / (t + 1)), 6)
    write = Replacement(graph, node)
    x = write("Abs", write("Cast", *write.inputs, to=FLOAT))
    small = write("LessOrEqual", x, np.float32(8))
    t = write("Where", small, write("Div", x, np.float32(4)), write("Div", np.float32(16), x))
    angle = write("Acos", write("Sub", t, ONE))
    waves = write("Cos", write("Mul", write("Unsqueeze", angle, [-1]), np.arange(len(near), dtype=np.float32)))
    found = _sum(write, waves, small, near, np.pad(beyond, (0, len(near) - len(beyond))))
    scale = write("Where", small, ONE, write("Sqrt", x))
    write.last("Cast", write("Mul", write("Div", found, scale), write("Exp", x)), to=write.dtype)


def _sum(write: Replacement, terms: str, condition: str, one: Any, other: Any) -> str:
    """Return the sum of terms, each by its coefficient of the one or of the other, as the condition says."""
    coefficients = write("Where", write("Unsqueeze", condition, [-1]), *(np.array(each, "f4") for each in (one, other)))
    return write("ReduceSum", write("Mul", terms, coefficients), [-1], keepdims=0)
