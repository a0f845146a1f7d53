"""Handlers for elementwise operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import Replacement, Writer, constant_of
from ..indexing.selection import chosen
from .atan2 import is_negative

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE}
SIGN_BIT = np.int32(np.iinfo(np.int32).min)


def select(graph: Any, node: Any) -> None:
    """`SelectV2`, which is `tf.where`, as `Where`; the condition of `Select` may be one for each row."""
    rows, rank = graph.get_rank(node.input[0]), graph.get_rank(node.input[1])
    if node.type == "Select" and rows == 1 and rank is None:
        return
    if node.type == "Select" and rows == 1 and rank > 1:
        condition = Writer(graph)("Unsqueeze", node.input[0], [*range(1, rank)])
        graph.replace_inputs(node, [condition, *node.input[1:]])
    write = Replacement(graph, node)
    chosen(write, *write.inputs)


def erfc(graph: Any, node: Any) -> None:
    """`Erfc` as `1 - Erf`; that of `-x / sqrt(2)`, which is in the exact GELU, as `Erf(x / sqrt(2)) + 1`.

    So, and with a division, onnxruntime knows a GELU, and computes it in one operator.
    """
    write = Replacement(graph, node)
    (x,) = write.inputs
    kind = tensor_dtype_to_np_dtype(write.dtype).type
    opposite = _opposite(graph, x, kind(math.sqrt(0.5)))
    if opposite is None:
        write.last("Sub", kind(1), write("Erf", x))
    else:
        write.last("Add", write("Erf", write("Div", opposite, kind(math.sqrt(2)))), kind(1))


def _opposite(graph: Any, name: str, factor: np.generic) -> str | None:
    """Return what a tensor is the negative of, times this factor, or None where it is no such product."""
    product = graph.get_node_by_output(name)
    if product is None or product.type != "Mul":
        return None
    for one, other in zip(product.input, reversed(product.input), strict=True):
        negative, number = graph.get_node_by_output(one), constant_of(graph, other)
        if negative is not None and negative.type == "Neg" and number is not None and np.array_equal(number, factor):
            return str(negative.input[0])
    return None


def sign_bit(graph: Any, node: Any) -> None:
    """`Bitcast` of a float to int32 where only the sign bit is read.

    ONNX has no bit cast before opset 26: the sign is found by comparison, that of a zero by its reciprocal. Any other
    use of `Bitcast` is left as it is.
    """
    consumers = graph.find_output_consumers(node.output[0])
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or not all(_reads_sign(each) for each in consumers):
        return
    write = Replacement(graph, node)
    write.last("Where", is_negative(write, write.inputs[0], np.array(0, np.float32)), SIGN_BIT, np.int32(0))


def _reads_sign(consumer: Any) -> bool:
    values = [each.get_tensor_value(as_list=False) for each in consumer.inputs if each.is_const()]
    return consumer.type == "BitwiseAnd" and any(np.array_equal(value, SIGN_BIT) for value in values)


def total(graph: Any, node: Any) -> None:
    """`AddN`: `Sum` of floats, and of integers, which that does not take, one after the other."""
    if node.output_dtypes[0] in FLOATS:
        node.type = "Sum"
        return
    write = Replacement(graph, node)
    found = write.inputs[0]
    for each in write.inputs[1:]:
        found = write("Add", found, each)
    write.last("Identity", found)


def as_it_is(graph: Any, node: Any) -> None:
    """What matters to gradients or to Python alone."""
    node.type = "Identity"


def biased(graph: Any, node: Any) -> None:
    """`BiasAdd` as tf2onnx has it; channels first, axes follow those of the bias, which may be no constant."""
    if node.get_attr_value("data_format", b"").startswith(b"NC"):
        write, rank = Replacement(graph, node), graph.get_rank(node.input[0])
        x, bias = write.inputs
        write.last("Add", x, write("Unsqueeze", bias, [*range(1, rank - 1)]))
    else:
        convert_with_tf2onnx(graph, node)


def clipped(graph: Any, node: Any) -> None:
    """`ClipByValue`: limits of any shape; the lower one counts where they cross."""
    write = Replacement(graph, node)
    x, low, high = write.inputs
    write.last("Max", write("Min", x, high), low)


def softplus(graph: Any, node: Any) -> None:
    """`Softplus`: where onnxruntime has only a formula, the exponential of a large number is infinite."""
    if node.output_dtypes[0] == TensorProto.FLOAT:
        return
    write = Replacement(graph, node)
    (x,), one = write.inputs, np.ones((), tensor_dtype_to_np_dtype(write.dtype))
    rest = write("Log", write("Add", write("Exp", write("Neg", write("Abs", x))), one))
    write.last("Add", write("Relu", x), rest)


def by_zero(graph: Any, node: Any) -> None:
    """`MulNoNan`, `Xdivy` and `Xlogy`: zero where the second, or of the others the first, is."""
    write = Replacement(graph, node)
    (x, y), zero = write.inputs, np.zeros((), tensor_dtype_to_np_dtype(write.dtype))
    found = (
        write("Div", x, y) if node.type == "Xdivy" else write("Mul", x, write("Log", y) if node.type == "Xlogy" else y)
    )
    write.last("Where", write("Equal", y if node.type == "MulNoNan" else x, zero), zero, found)


def known_to_onnx(graph: Any, node: Any) -> None:
    """What has its own name in ONNX."""
    node.type = {"Inv": "Reciprocal"}.get(node.type, node.type)


def multiplied(graph: Any, node: Any) -> None:
    """`BatchMatMul` as tf2onnx has it: of what is not complex the adjoint is the transpose, integers too."""
    for adjoint, transpose in (("adj_x", "transpose_a"), ("adj_y", "transpose_b")):
        node.set_attr(transpose, int(node.get_attr_value(adjoint, 0)))
        node.attr.pop(adjoint, None)
    convert_with_tf2onnx(graph, node)
