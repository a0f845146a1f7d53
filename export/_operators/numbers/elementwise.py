"""Handlers for elementwise operators."""

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, Refusal, constant_value
from ..indexing.selection import finish_where
from ..kernel_dtypes import find_kernel_dtype
from .special_functions import is_negative

SIGN_BIT = np.int32(np.iinfo(np.int32).min)


def select(graph: Any, node: Any) -> Refusal:
    """Convert `Select` and `SelectV2` (`tf.where`) to `Where`; the condition of `Select` may be one for each row."""
    if node.type == "Select" and graph.get_rank(node.input[0]) == 1:
        rank = graph.get_rank(node.input[1])
        if rank is None:
            return "it selects rows of a tensor of unknown rank"
        if rank > 1:
            condition = GraphBuilder(graph).Unsqueeze(node.input[0], [*range(1, rank)])
            graph.replace_inputs(node, [condition, *node.input[1:]])
    op = NodeReplacement(graph, node)
    finish_where(op, *op.inputs)
    return None


def erfc(graph: Any, node: Any) -> None:
    """Convert `Erfc` to `1 - Erf`; that of `-x / sqrt(2)`, which is in the exact GELU, to `Erf(x / sqrt(2)) + 1`.

    onnxruntime recognizes a GELU in this form, with a division, and computes it in one operator.
    """
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    opposite = _match_negated_product(graph, x, op.number(math.sqrt(0.5)))
    if opposite is None:
        op.finish("Sub", op.number(1), op.Erf(x))
    else:
        op.finish("Add", op.Erf(op.Div(opposite, op.number(math.sqrt(2)))), op.number(1))


def _match_negated_product(graph: Any, name: str, factor: np.ndarray) -> str | None:
    """Return x if a tensor is `-x * factor`, else None."""
    product = graph.get_node_by_output(name)
    if product is None or product.type != "Mul":
        return None
    for one, other in zip(product.input, reversed(product.input), strict=True):
        negative = graph.get_node_by_output(one)
        number = constant_value(graph, other)
        if negative is not None and negative.type == "Neg" and number is not None and np.array_equal(number, factor):
            return str(negative.input[0])
    return None


def bitcast(graph: Any, node: Any) -> Refusal:
    """Convert `Bitcast` of a float to int32 of which only the sign bit is read.

    ONNX has no bit cast before opset 26: the sign follows from a comparison, that of a zero from its reciprocal.
    """
    consumers = graph.find_output_consumers(node.output[0])
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or not all(map(_reads_sign, consumers)):
        return "ONNX has bit casts from opset 26 on; only the sign bit of float32 is supported"
    op = NodeReplacement(graph, node)
    return op.finish("Where", is_negative(op, op.inputs[0], np.array(0, np.float32)), SIGN_BIT, np.int32(0))


def _reads_sign(consumer: Any) -> bool:
    values = [source.get_tensor_value(as_list=False) for source in consumer.inputs if source.is_const()]
    return consumer.type == "BitwiseAnd" and any(np.array_equal(value, SIGN_BIT) for value in values)


def add_n(graph: Any, node: Any) -> None:
    """Convert `AddN` to `Sum`, and of integers, which `Sum` does not take, to additions."""
    if find_kernel_dtype("Sum", node.output_dtypes[0]) == node.output_dtypes[0]:
        node.type = "Sum"
        return
    op = NodeReplacement(graph, node)
    total = op.inputs[0]
    for term in op.inputs[1:]:
        total = op.Add(total, term)
    op.finish("Identity", total)


def identity(graph: Any, node: Any) -> None:
    """Convert `Snapshot`, `PreventGradient`, `DeepCopy` and `PlaceholderWithDefault`, which change no value."""
    node.type = "Identity"


def bias_add(graph: Any, node: Any) -> None:
    """Convert `BiasAdd` with channels first, whose bias need not be constant; tf2onnx converts the rest."""
    if not node.get_attr_value("data_format", b"").startswith(b"NC"):
        convert_with_tf2onnx(graph, node)
        return
    rank = graph.get_rank(node.input[0])
    op = NodeReplacement(graph, node)
    x, bias = op.inputs
    op.finish("Add", x, op.Unsqueeze(bias, [*range(1, rank - 1)]))


def clip_by_value(graph: Any, node: Any) -> None:
    """Convert `ClipByValue` with limits of any shape; the lower limit counts where they cross."""
    op = NodeReplacement(graph, node)
    x, low, high = op.inputs
    op.finish("Max", op.Min(x, high), low)


def softplus(graph: Any, node: Any) -> None:
    """Convert `Softplus` of other dtypes than float32: onnxruntime's formula overflows for large numbers there.

    log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)).
    """
    if node.output_dtypes[0] == TensorProto.FLOAT:
        return
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    rest = op.Log(op.Add(op.Exp(op.Neg(op.Abs(x))), op.number(1)))
    op.finish("Add", op.Relu(x), rest)


def mul_no_nan_xdivy_xlogy(graph: Any, node: Any) -> None:
    """Convert `MulNoNan` (zero where y is zero), `Xdivy` and `Xlogy` (zero where x is zero)."""
    op = NodeReplacement(graph, node)
    x, y = op.inputs
    zero = op.number(0)
    if node.type == "MulNoNan":
        op.finish("Where", op.Equal(y, zero), zero, op.Mul(x, y))
    else:
        result = op.Div(x, y) if node.type == "Xdivy" else op.Mul(x, op.Log(y))
        op.finish("Where", op.Equal(x, zero), zero, result)


def log(graph: Any, node: Any) -> None:
    """Keep `Log`, which ONNX has under the same name."""


def inv(graph: Any, node: Any) -> None:
    """Convert `Inv` to `Reciprocal`."""
    node.type = "Reciprocal"


def batch_mat_mul(graph: Any, node: Any) -> None:
    """Convert `BatchMatMul` with tf2onnx: the adjoint of a real matrix is its transpose, also of integers."""
    for adjoint, transpose in (("adj_x", "transpose_a"), ("adj_y", "transpose_b")):
        node.set_attr(transpose, int(node.get_attr_value(adjoint, 0)))
        node.attr.pop(adjoint, None)
    convert_with_tf2onnx(graph, node)
