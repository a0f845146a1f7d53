"""Operators that are computed number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .writing import Replacement

SIGN_BIT = np.int32(np.iinfo(np.int32).min)


def select(graph: Any, node: Any) -> None:
    """`SelectV2`, which is `tf.where`, as `Where`; onnxruntime has none for booleans, where the choice is logic."""
    if graph.get_dtype(node.output[0]) != TensorProto.BOOL:
        node.type = "Where"
        return
    write = Replacement(graph, node)
    condition, chosen, other = write.inputs
    write.last("Or", write("And", condition, chosen), write("And", write("Not", condition), other))


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
    (x,) = write.inputs
    zero = np.float32(0)
    from_below = write("Less", write("Div", np.float32(1), x), zero)
    write.last("Where", write("Or", write("Less", x, zero), from_below), SIGN_BIT, np.int32(0))


def _reads_sign(consumer: Any) -> bool:
    values = [each.get_tensor_value(as_list=False) for each in consumer.inputs if each.is_const()]
    return consumer.type == "BitwiseAnd" and any(np.array_equal(value, SIGN_BIT) for value in values)
