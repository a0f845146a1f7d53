"""Functions of mathematics that ONNX has not, in float32: sums over one more axis, a term each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate
from onnx import TensorProto

from .writing import Replacement

FLOAT = TensorProto.FLOAT
ONE = np.float32(1)
# Giles, Approximating the erfinv function (2010), table 5: of the middle, and of the ends
MIDDLE = [1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06]
MIDDLE += [3.43273939e-07, 2.81022636e-08]
ENDS = [2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322]
ENDS += [0.000100950558, -0.000200214257]


def inverse_error_function(graph: Any, node: Any) -> None:
    """`Erfinv`: x times a polynomial of -log(1 - x^2), in float32."""
    write = Replacement(graph, node)
    x = write("Cast", *write.inputs, to=FLOAT)
    w = write("Neg", write("Log", write("Mul", write("Sub", ONE, x), write("Add", ONE, x))))
    middle = write("Less", w, np.float32(5))
    w = write("Where", middle, write("Sub", w, np.float32(2.5)), write("Sub", write("Sqrt", w), np.float32(3)))
    powers = write("Pow", write("Unsqueeze", w, [-1]), np.arange(len(MIDDLE), dtype=np.float32))
    factor = _sum(write, powers, middle, MIDDLE, ENDS)
    at_end = write("Equal", write("Abs", x), ONE)
    write.last("Cast", write("Mul", x, write("Where", at_end, np.float32(np.inf), factor)), to=write.dtype)


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
