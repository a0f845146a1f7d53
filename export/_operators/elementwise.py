"""Operators that are computed number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .selection import chosen
from .writing import Replacement, Writer

SIGN_BIT = np.int32(np.iinfo(np.int32).min)


def select(graph: Any, node: Any) -> None:
    """`SelectV2`, which is `tf.where`, as `Where`."""
    write = Replacement(graph, node)
    chosen(write, *write.inputs)


def erfc(graph: Any, node: Any) -> None:
    """`Erfc` as `1 - Erf`."""
    write = Replacement(graph, node)
    (x,) = write.inputs
    write.last("Sub", write("CastLike", np.float32(1), x), write("Erf", x))


def sign_bit(graph: Any, node: Any) -> None:
    """`Bitcast` of a float to int32 where only the sign bit is read.

    ONNX has no bit cast before opset 26: the sign is found by comparison, that of a zero by its reciprocal. Any other
    use of `Bitcast` is left as it is.
    """
    consumers = graph.find_output_consumers(node.output[0])
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or not all(_reads_sign(each) for each in consumers):
        return
    write = Replacement(graph, node)
    write.last("Where", _is_negative(write, *write.inputs), SIGN_BIT, np.int32(0))


def _is_negative(write: Writer, x: str) -> str:
    zero = np.float32(0)
    return write("Or", write("Less", x, zero), write("Less", write("Div", np.float32(1), x), zero))


def arctangent(graph: Any, node: Any) -> None:
    """`Atan2` of float32 and float16: that of a quotient, and pi from there where x is negative.

    Two zeros are the one above, two infinities the product of their signs.
    """
    dtype = graph.get_dtype(node.input[0])
    if dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return
    write = Replacement(graph, node)
    y, x = (each if dtype == TensorProto.FLOAT else write("Cast", each, to=TensorProto.FLOAT) for each in write.inputs)
    size = write("Min", write("Abs", x), write("Abs", y)), write("Max", write("Abs", x), write("Abs", y))
    quotient = write(
        "Where", write("IsInf", size[0]), write("Mul", write("Sign", x), write("Sign", y)), write("Div", y, x)
    )
    quotient = write("Where", write("Equal", size[1], np.float32(0)), y, quotient)
    half = write("Where", _is_negative(write, y), np.float32(-np.pi), np.float32(np.pi))
    angle = write("Atan", quotient)
    turned = write("Where", _is_negative(write, x), write("Add", angle, half), angle)
    write.last("Cast", turned, to=dtype)


def _reads_sign(consumer: Any) -> bool:
    values = [each.get_tensor_value(as_list=False) for each in consumer.inputs if each.is_const()]
    return consumer.type == "BitwiseAnd" and any(np.array_equal(value, SIGN_BIT) for value in values)
