"""Handlers for integer division, remainders and bit shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from ..graph_builder import Replacement, constant_of

_SIZES = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"}
_OF_ALL = {"Add", "AddV2", "Mul", "Max", "Maximum", "Div", "FloorDiv", "Mod", "FloorMod", "Concat", "Pack", "Range"}
_OF_FIRST = {"Cast", "Identity", "Slice", "StridedSlice", "Gather", "GatherV2", "Squeeze", "Unsqueeze", "ExpandDims"}
_OF_FIRST |= {"Reshape", "ReduceProd", "Prod"}


def quotient(graph: Any, node: Any) -> None:
    """`FloorDiv`: `Div` rounds integers towards zero.

    Where that differs, the remainders differ by one divisor. A power of two takes a mask of bits, sizes take nothing.
    """
    dtype, divisor = _dtype(graph, node), constant_of(graph, node.input[1])
    natural = dtype.kind == "u" or all(_is_natural(graph, each) for each in node.input)
    write = Replacement(graph, node)
    x, y = write.inputs
    if dtype.kind == "f":
        write.last("Floor", write("Div", x, y))
    elif natural:
        write.last("Div", x, y)
    elif divisor is not None and divisor.size == 1 and divisor > 0 and not divisor & (divisor - 1):
        write.last("Div", write("BitwiseAnd", x, -divisor), y)
    else:
        apart = write("Sub", write("Mod", x, y), write("Mod", x, y, fmod=1))
        write.last("Sub", write("Div", *_without_overflow(write, x, y, divisor)), write("Div", apart, y))


def cut_quotient(graph: Any, node: Any) -> None:
    """`TruncateDiv`, which cuts floats too, and `Div`, which cuts integers alone."""
    op, dtype, divisor = node.type, _dtype(graph, node), constant_of(graph, node.input[1])
    write = Replacement(graph, node)
    x, y = write.inputs
    if dtype.kind == "f" and op == "TruncateDiv":
        found = write("Div", x, y)
        write.last("Mul", write("Floor", write("Abs", found)), write("Sign", found))
    elif dtype.kind != "i":
        write.last("Div", x, y)
    else:
        write.last("Div", *_without_overflow(write, x, y, divisor))


def _without_overflow(write: Replacement, x: str, y: str, divisor: np.ndarray | None) -> tuple[str, str]:
    """Return what is divided and by what, without a divisor of -1: the least integer by -1 ends the process."""
    if divisor is not None and not (divisor == -1).any():
        return x, y
    one = np.ones((), tensor_dtype_to_np_dtype(write.dtype))
    turned = write("Equal", y, -one)
    return write("Where", turned, write("Neg", x), x), write("Where", turned, one, y)


def remainder(graph: Any, node: Any) -> None:
    """`FloorMod`: `Mod` of integers has the sign of the divisor, that of floats the sign of what is divided."""
    dtype, divisor = _dtype(graph, node), constant_of(graph, node.input[1])
    write = Replacement(graph, node)
    x, y = write.inputs
    if dtype.kind != "f":
        write.last("Mod", x, y)
        return
    left = write("Mod", x, y, fmod=1)
    side = left if divisor is not None and (divisor > 0).all() else write("Mul", write("Sign", left), write("Sign", y))
    write.last("Where", write("Less", side, np.zeros((), dtype)), write("Add", left, y), left)


def truncated(graph: Any, node: Any) -> None:
    """`TruncateMod`."""
    write = Replacement(graph, node)
    write.last("Mod", *write.inputs, fmod=1)


def shift(graph: Any, node: Any) -> None:
    """`LeftShift` and `RightShift`: `BitShift` takes unsigned integers only.

    An integer made 64 bits wide with its sign shifts right as it should where it is cut back. One of 64 bits does not:
    what is negative is shifted inverted. Counts are clipped to those of the bits, as TensorFlow does.
    """
    dtype, count = _dtype(graph, node), constant_of(graph, node.input[1])
    direction, most = ("LEFT", "RIGHT")[node.type == "RightShift"], dtype.itemsize * 8 - 1
    write = Replacement(graph, node)
    x, by = write.inputs
    if count is None:
        by = write("Clip", write("Cast", by, to=TensorProto.INT64), np.int64(0), np.int64(most))
        by = write("Cast", by, to=TensorProto.UINT64)
    else:
        by = write.constant(np.clip(count.astype("i8"), 0, most).astype("u8"))
    sign = None
    if direction == "RIGHT" and dtype == np.int64:
        sign = write("Neg", write("Cast", write("Less", x, np.int64(0)), to=TensorProto.INT64))
        x = write("BitwiseXor", x, sign)
    shifted = write("BitShift", write("Cast", x, to=TensorProto.UINT64), by, direction=direction)
    if sign is None:
        write.last("Cast", shifted, to=write.dtype)
    else:
        write.last("BitwiseXor", write("Cast", shifted, to=write.dtype), sign)


def _dtype(graph: Any, node: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(tensor_dtype_to_np_dtype(graph.get_dtype(node.input[0])))
    return found


def _is_natural(graph: Any, name: str) -> bool:
    """Tell whether integers are sizes or made of such, so that none is negative."""
    node = graph.get_node_by_output(name)
    if node is None or node.type in _SIZES:
        return node is not None
    if node.is_const():
        return bool((node.get_tensor_value(as_list=False) >= 0).all())
    if node.type in _OF_ALL:
        return all(_is_natural(graph, each) for each in node.input)
    return node.type in _OF_FIRST and _is_natural(graph, node.input[0])
