"""`Log1p` and `Expm1`, which tf2onnx 1.17 does not know: log(1 + x) and exp(x) - 1, right to rounding near 0 too.

Written as they read, both lose the digits of a small x when it is added to 1. What the rounded u = 1 + x is the sum of,
u - 1, is however exact: log(u) / (u - 1) is the right ratio for a neighbour of x, where it is nearly the same, and
times x it is the answer. The other way round for u = exp(x), whose x is log(u) (Higham, Accuracy and Stability of
Numerical Algorithms, 2002, section 1.14.1). At u = 1 both ratios are 0 / 0, and their limit is 1.

Complex numbers are left as they are, and refused as an op without mapping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from .elementwise import Handler, constant

NUMPY = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64}
Write = Callable[..., str]


def _log1p(write: Write, x: str, one: str, infinity: str) -> list[str]:
    """`x * (log(u) / (u - 1))`; infinity times 1 where the ratio is inf / inf."""
    u = write("Add", x, one)
    limit = write("Or", write("Equal", u, one), write("Equal", u, infinity))
    ratio = write("Where", limit, one, write("Div", write("Log", u), write("Sub", u, one)))
    return ["Mul", x, ratio]


def _expm1(write: Write, x: str, one: str, infinity: str) -> list[str]:
    """`x * ((u - 1) / log(u))`; u - 1 itself where x is not small and log(u) may be infinite."""
    u = write("Exp", x)
    rest = write("Sub", u, one)
    ratio = write("Where", write("Equal", u, one), one, write("Div", rest, write("Log", u)))
    far = write("Or", write("Equal", rest, write("Neg", one)), write("Equal", u, infinity))
    # onnxruntime's Where keeps the sign of a zero only of its last input
    return ["Where", far, rest, write("Mul", x, ratio)]


def _handler(formula: Callable[[Write, str, str, str], list[str]]) -> Handler:
    def handle(graph: Any, node: Any, name: str, args: Any) -> None:
        x, outputs, shapes, dtypes = node.input[0], node.output, node.output_shapes, node.output_dtypes
        if dtypes[0] not in NUMPY:
            return
        one, infinity = (constant(graph, np.array(value, NUMPY[dtypes[0]])) for value in (1, np.inf))
        graph.remove_node(name)

        def write(op: str, *inputs: str) -> str:
            made = [TensorProto.BOOL] if op in ("Equal", "Or") else dtypes
            return str(graph.make_node(op, list(inputs), shapes=shapes, dtypes=made).output[0])

        op, *inputs = formula(write, x, one, infinity)
        graph.make_node(op, inputs, outputs=outputs, shapes=shapes, dtypes=dtypes, name=name)

    return handle, []


HANDLERS: dict[str, Handler] = {"Log1p": _handler(_log1p), "Expm1": _handler(_expm1)}
