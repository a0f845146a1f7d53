"""Handlers for integer division, remainders and bit shifts."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, constant_value
from ..kernel_dtypes import numpy_dtype

# Operators whose output is non-negative: always, if all inputs are non-negative, if the first input is
_SIZE_OPS = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"}
_ALL_INPUTS = {"Add", "AddV2", "Mul", "Max", "Maximum", "Div", "FloorDiv", "Mod", "FloorMod"}
_ALL_INPUTS |= {"Concat", "Pack", "Range"}
_FIRST_INPUT = {"Cast", "Identity", "Slice", "StridedSlice", "Gather", "GatherV2", "Squeeze", "Unsqueeze"}
_FIRST_INPUT |= {"ExpandDims", "Reshape", "ReduceProd", "Prod"}


def floor_div(graph: Any, node: Any) -> None:
    """Convert `FloorDiv` of (x, y), whose shapes broadcast, to `Div`, corrected for negative integers."""
    # ONNX's `Div` truncates integers (onnx/tensorflow-onnx#2174). With the floored and the truncated remainder m and r,
    # x = floor(x / y) y + m = trunc(x / y) y + r, so floor(x / y) = trunc(x / y) - (m - r) / y. For a divisor 2^k,
    # clearing the low k bits of x is enough. Non-negative integers, such as dims, need no correction.
    divisor = constant_value(graph, node.input[1])
    is_non_negative = all(_is_non_negative(graph, name) for name in node.input)
    op = NodeReplacement(graph, node)
    x, y = op.inputs
    kind = op.number(0).dtype.kind
    if kind == "f":
        op.finish("Floor", op.Div(x, y))
    elif kind == "u" or is_non_negative:
        op.finish("Div", x, y)
    elif divisor is not None and divisor.size == 1 and divisor > 0 and not divisor & (divisor - 1):
        op.finish("Div", op.BitwiseAnd(x, -divisor), y)
    else:
        difference = op.Sub(op.Mod(x, y), op.Mod(x, y, fmod=1))
        op.finish("Sub", op.Div(*_avoid_overflow(op, divisor)), op.Div(difference, y))


def div_and_truncate_div(graph: Any, node: Any) -> None:
    """Convert `TruncateDiv`, which truncates floats too, and `Div`, which truncates only integers, to `Div`."""
    divisor = constant_value(graph, node.input[1])
    op = NodeReplacement(graph, node)
    kind = op.number(0).dtype.kind
    if kind == "f" and node.type == "TruncateDiv":
        quotient = op.Div(*op.inputs)
        op.finish("Mul", op.Floor(op.Abs(quotient)), op.Sign(quotient))
    else:
        op.finish("Div", *(_avoid_overflow(op, divisor) if kind == "i" else op.inputs))


def _avoid_overflow(op: NodeReplacement, divisor: np.ndarray | None) -> tuple[str, str]:
    """Return dividend and divisor with divisors of -1 replaced by 1, and their dividends negated."""
    # In onnxruntime, the minimal integer divided by -1 ends the process
    x, y = op.inputs
    if divisor is not None and not (divisor == -1).any():
        return x, y
    one = op.number(1)
    is_minus_one = op.Equal(y, -one)
    return op.Where(is_minus_one, op.Neg(x), x), op.Where(is_minus_one, one, y)


def floor_mod(graph: Any, node: Any) -> None:
    """Convert `FloorMod` of (x, y), whose shapes broadcast, to `Mod`; tf2onnx uses `Div`, which truncates integers."""
    # `Mod` of integers has the sign of the divisor, as `FloorMod`, `Mod` of floats the sign of the dividend
    divisor = constant_value(graph, node.input[1])
    op = NodeReplacement(graph, node)
    x, y = op.inputs
    zero = op.number(0)
    if zero.dtype.kind != "f":
        op.finish("Mod", x, y)
        return
    remainder = op.Mod(x, y, fmod=1)
    is_positive = divisor is not None and (divisor > 0).all()
    sign_product = remainder if is_positive else op.Mul(op.Sign(remainder), op.Sign(y))
    op.finish("Where", op.Less(sign_product, zero), op.Add(remainder, y), remainder)


def truncate_mod(graph: Any, node: Any) -> None:
    """Convert `TruncateMod` to `Mod` with `fmod`; tf2onnx has no mapping."""
    op = NodeReplacement(graph, node)
    op.finish("Mod", *op.inputs, fmod=1)


def left_shift_and_right_shift(graph: Any, node: Any) -> None:
    """Convert `LeftShift` and `RightShift` of (x, counts), whose shapes broadcast, to `BitShift` of uint64."""
    # ONNX's `BitShift` has unsigned dtypes only, and shifts in zeros. A negative integer of fewer bits, widened to 64
    # with its sign, keeps enough sign bits for the cast back. A negative int64 is inverted before and after a right
    # shift. Counts are clipped to the number of bits - 1, as in TensorFlow.
    constant_counts = constant_value(graph, node.input[1])
    direction = "RIGHT" if node.type == "RightShift" else "LEFT"
    op = NodeReplacement(graph, node)
    x, counts = op.inputs
    max_count = numpy_dtype(op.dtype).itemsize * 8 - 1
    if constant_counts is None:
        counts = op.Clip(op.Cast(counts, to=TensorProto.INT64), np.int64(0), np.int64(max_count))
        counts = op.Cast(counts, to=TensorProto.UINT64)
    else:
        counts = op.constant(np.clip(constant_counts.astype("i8"), 0, max_count).astype("u8"))
    sign = None
    if direction == "RIGHT" and op.dtype == TensorProto.INT64:
        sign = op.Neg(op.Cast(op.Less(x, np.int64(0)), to=TensorProto.INT64))
        x = op.BitwiseXor(x, sign)
    shifted = op.BitShift(op.Cast(x, to=TensorProto.UINT64), counts, direction=direction)
    if sign is None:
        op.finish("Cast", shifted, to=op.dtype)
    else:
        op.finish("BitwiseXor", op.Cast(shifted, to=op.dtype), sign)


def _is_non_negative(graph: Any, name: str) -> bool:
    """Return True if integers are dims, or computed from dims by operators that keep them non-negative."""
    node = graph.get_node_by_output(name)
    if node is None or node.type in _SIZE_OPS:
        return node is not None
    if node.is_const():
        return bool((node.get_tensor_value(as_list=False) >= 0).all())
    if node.type in _ALL_INPUTS:
        return all(_is_non_negative(graph, source) for source in node.input)
    return node.type in _FIRST_INPUT and _is_non_negative(graph, node.input[0])
