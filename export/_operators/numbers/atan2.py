"""Handler for `Atan2`, with IEEE 754 results for zeros and infinities.

tf2onnx's form gives an angle of 0 to all that lies on an axis at infinity, and NaN where a ratio of the two is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ..graph_builder import Replacement, Writer


def atan2(graph: Any, node: Any) -> None:
    """`Atan2` of (y, x): the arc tangent of y / x, and half a turn more where x is negative, as -0.0 is.

    Of two infinities the ratio is that of their signs; of two zeros y is the arc.
    """
    dtype = tensor_dtype_to_np_dtype(node.output_dtypes[0])
    write = Replacement(graph, node)
    (y, x), zero, infinite = write.inputs, np.array(0, dtype), np.array(np.inf, dtype)
    both_zero = write("And", write("Equal", y, zero), write("Equal", x, zero))
    both_infinite = write("And", *(write("Equal", write("Abs", each), infinite) for each in (y, x)))
    ratio = write("Where", both_infinite, write("Mul", write("Sign", y), write("Sign", x)), write("Div", y, x))
    # onnxruntime's Where keeps the sign of a zero only of its last input
    arc = write("Where", write("Not", both_zero), write("Atan", ratio), y)
    half = np.array(np.pi, dtype)
    turned = write("Add", arc, write("Where", is_negative(write, y, zero), -half, half))
    write.last("Where", is_negative(write, x, zero), turned, arc)


def is_negative(write: Writer, x: str, zero: np.ndarray) -> str:
    """Tell what is below zero, or -0.0, whose reciprocal is."""
    return write("Or", write("Less", x, zero), write("Less", write("Reciprocal", x), zero))
