"""Handlers for `Log1p` and `Expm1`, accurate near zero.

Written as they read, both lose the digits of a small x when it is added to 1. What the rounded u = 1 + x is the sum of,
u - 1, is however exact: log(u) / (u - 1) is the right ratio for a neighbour of x, where it is nearly the same, and
times x it is the answer. The other way round for u = exp(x), whose x is log(u) (Higham, Accuracy and Stability of
Numerical Algorithms, 2002, section 1.14.1). At u = 1 both ratios are 0 / 0, and their limit is 1.

Complex numbers are left as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ..graph_builder import Replacement


def log1p(graph: Any, node: Any) -> None:
    """`x * (log(u) / (u - 1))`; infinity times 1 where the ratio is inf / inf."""
    dtype = tensor_dtype_to_np_dtype(node.output_dtypes[0])
    if dtype.kind != "f":
        return
    write = Replacement(graph, node)
    (x,), one = write.inputs, np.array(1, dtype)
    u = write("Add", x, one)
    limit = write("Or", write("Equal", u, one), write("Equal", u, np.array(np.inf, dtype)))
    write.last("Mul", x, write("Where", limit, one, write("Div", write("Log", u), write("Sub", u, one))))


def expm1(graph: Any, node: Any) -> None:
    """`x * ((u - 1) / log(u))`; u - 1 itself where x is not small and log(u) may be infinite."""
    dtype = tensor_dtype_to_np_dtype(node.output_dtypes[0])
    if dtype.kind != "f":
        return
    write = Replacement(graph, node)
    (x,), one = write.inputs, np.array(1, dtype)
    u = write("Exp", x)
    rest = write("Sub", u, one)
    ratio = write("Where", write("Equal", u, one), one, write("Div", rest, write("Log", u)))
    far = write("Or", write("Equal", rest, -one), write("Equal", u, np.array(np.inf, dtype)))
    # onnxruntime's Where keeps the sign of a zero only of its last input
    write.last("Where", far, rest, write("Mul", x, ratio))
