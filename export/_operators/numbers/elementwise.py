"""Handlers for elementwise operators."""

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason, constant_value
from ..indexing.selection import finish_where
from ..kernel_dtypes import find_kernel_dtype
from .special_functions import is_negative

SIGN_BIT = np.int32(np.iinfo(np.int32).min)


def select(graph: Any, node: Any) -> RejectionReason:
    """Convert `Select` and `SelectV2` (`tf.where`) of (condition, x, y) to `Where`, or to logic for booleans."""
    # tf2onnx writes mask * x + (1 - mask) * y, which is NaN if the unselected element is infinite
    # (onnx/tensorflow-onnx#1988). The condition of `Select` may be (N,) for x and y (N, ...).
    if node.type == "Select" and graph.get_rank(node.input[0]) == 1:
        rank = graph.get_rank(node.input[1])
        if rank is None:
            return "it selects rows of a tensor whose rank is unknown"
        if rank > 1:
            condition = GraphBuilder(graph).Unsqueeze(node.input[0], [*range(1, rank)])
            graph.replace_inputs(node, [condition, *node.input[1:]])
    op = NodeReplacement(graph, node)
    finish_where(op, *op.inputs)
    return None


def erfc(graph: Any, node: Any) -> None:
    """Convert `Erfc` to `1 - Erf(x)`, and of `-x * sqrt(1/2)` to `Erf(x / sqrt(2)) + 1`; tf2onnx has no mapping."""
    # The second form is in the exact GELU: onnxruntime fuses it, with a division, to one operator
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    negated = _match_negated_product(graph, x, op.number(math.sqrt(0.5)))
    if negated is None:
        op.finish("Sub", op.number(1), op.Erf(x))
    else:
        op.finish("Add", op.Erf(op.Div(negated, op.number(math.sqrt(2)))), op.number(1))


def _match_negated_product(graph: Any, name: str, factor: np.ndarray) -> str | None:
    """Return x if a tensor is `-x * factor`, else None."""
    product = graph.get_node_by_output(name)
    if product is None or product.type != "Mul":
        return None
    for negation_name, factor_name in zip(product.input, reversed(product.input), strict=True):
        negation = graph.get_node_by_output(negation_name)
        value = constant_value(graph, factor_name)
        if negation is not None and negation.type == "Neg" and value is not None and np.array_equal(value, factor):
            return str(negation.input[0])
    return None


def bitcast(graph: Any, node: Any) -> RejectionReason:
    """Convert `Bitcast` of float32 to int32, if only the sign bit is read, to a comparison; tf2onnx has no mapping."""
    # ONNX has no bit cast before opset 26. The sign of a zero follows from its reciprocal
    consumers = graph.find_output_consumers(node.output[0])
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or not all(map(_reads_sign, consumers)):
        return "ONNX has bit casts from opset 26 on; before, only reading the sign bit of float32 is supported"
    op = NodeReplacement(graph, node)
    return op.finish("Where", is_negative(op, op.inputs[0], np.array(0, np.float32)), SIGN_BIT, np.int32(0))


def _reads_sign(consumer: Any) -> bool:
    """Return True if a node masks all bits but the sign bit."""
    values = [source.get_tensor_value(as_list=False) for source in consumer.inputs if source.is_const()]
    return consumer.type == "BitwiseAnd" and any(np.array_equal(value, SIGN_BIT) for value in values)


def add_n(graph: Any, node: Any) -> None:
    """Convert `AddN` to `Sum`, or to `Add` for dtypes for which onnxruntime has no `Sum`."""
    if find_kernel_dtype("Sum", node.output_dtypes[0]) == node.output_dtypes[0]:
        node.type = "Sum"
        return
    op = NodeReplacement(graph, node)
    total = op.inputs[0]
    for term in op.inputs[1:]:
        total = op.Add(total, term)
    op.finish("Identity", total)


def identity(graph: Any, node: Any) -> None:
    """Convert `Snapshot`, `PreventGradient`, `DeepCopy` and `PlaceholderWithDefault` to `Identity`."""
    node.type = "Identity"


def bias_add(graph: Any, node: Any) -> None:
    """Convert `BiasAdd` of (x (B, C, ...), bias (C,)) to `Add`; with channels last by tf2onnx."""
    # With channels first, tf2onnx adds a computed bias to the last axis
    if not node.get_attr_value("data_format", b"").startswith(b"NC"):
        convert_with_tf2onnx(graph, node)
        return
    rank = graph.get_rank(node.input[0])
    op = NodeReplacement(graph, node)
    x, bias = op.inputs
    op.finish("Add", x, op.Unsqueeze(bias, [*range(1, rank - 1)]))


def clip_by_value(graph: Any, node: Any) -> None:
    """Convert `ClipByValue` of (x, low, high), whose shapes broadcast, to `Min` and `Max`; tf2onnx needs scalars."""
    # As in TensorFlow, the lower limit wins if the limits are crossed
    op = NodeReplacement(graph, node)
    x, low, high = op.inputs
    op.finish("Max", op.Min(x, high), low)


def softplus(graph: Any, node: Any) -> None:
    """Convert `Softplus` of float16 and float64 to `max(x, 0) + log(1 + exp(-|x|))`; keep it in float32."""
    # onnxruntime computes log(1 + exp(x)), which overflows: in float16 from x = 12 on, and in float64
    if node.output_dtypes[0] == TensorProto.FLOAT:
        return
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    correction = op.Log(op.Add(op.Exp(op.Neg(op.Abs(x))), op.number(1)))
    op.finish("Add", op.Relu(x), correction)


def mul_no_nan_xdivy_xlogy(graph: Any, node: Any) -> None:
    """Convert `MulNoNan` (0 if y is 0), `Xdivy` and `Xlogy` (0 if x is 0) to `Where`; tf2onnx has no mapping."""
    op = NodeReplacement(graph, node)
    x, y = op.inputs
    zero = op.number(0)
    if node.type == "MulNoNan":
        op.finish("Where", op.Equal(y, zero), zero, op.Mul(x, y))
    else:
        result = op.Div(x, y) if node.type == "Xdivy" else op.Mul(x, op.Log(y))
        op.finish("Where", op.Equal(x, zero), zero, result)


def log(graph: Any, node: Any) -> None:
    """Keep `Log`, the name in ONNX too; tf2onnx fails for float16, and computes float64 in float32."""


def inv(graph: Any, node: Any) -> None:
    """Convert `Inv` to `Reciprocal`; tf2onnx has no mapping."""
    node.type = "Reciprocal"


def batch_mat_mul(graph: Any, node: Any) -> None:
    """Convert `BatchMatMul` with tf2onnx, with adjoints as transpositions: tf2onnx fails for adjoints of integers."""
    for adjoint, transpose in (("adj_x", "transpose_a"), ("adj_y", "transpose_b")):
        node.set_attr(transpose, int(node.get_attr_value(adjoint, 0)))
        node.attr.pop(adjoint, None)
    convert_with_tf2onnx(graph, node)
