"""Operators that may run in float16, and the products of attention scores, which stay float32.

Attention scores are an exception among products: the softmax turns the absolute error of a score into a relative error
of its weight, and scores may be 1e4 or more, where float16 has a spacing of 8, or overflows at 65504.
"""

from collections.abc import Container

import onnx

PRODUCT_OPS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
TABLE_OPS = frozenset({"Gather"})  # on a constant: an embedding

# Operators whose outputs are not much larger than their inputs and do not amplify relative errors much.
_LAYOUT_OPS = {"DepthToSpace", "Flatten", "Identity", "Reshape", "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze"}
_SELECTION_OPS = {"Gather", "GatherElements", "GatherND", "MaxPool", "ReverseSequence", "Slice", "Split"}
_JOINING_OPS = {"Concat", "Expand", "Pad", "Tile"}
_ARITHMETIC_OPS = {"Add", "Clip", "LeakyRelu", "Mul", "Neg", "PRelu", "Relu", "Sigmoid", "Sub", "Tanh", "Where"}
TYPE_PRESERVING_OPS = frozenset(_LAYOUT_OPS | _SELECTION_OPS | _JOINING_OPS | _ARITHMETIC_OPS)

_SCORE_TO_SOFTMAX_OPS = TYPE_PRESERVING_OPS | {"Div", "Max", "Min"}  # scale, mask and soft cap of scores


def find_score_products(graph: onnx.GraphProto, constants: Container[str]) -> set[str]:
    """Return the attention scores of a graph: products of two computed tensors that are inputs of a softmax."""
    producers = {name: node for node in graph.node for name in node.output}
    scores: set[str] = set()
    visited: set[str] = set()
    pending = [node.input[0] for node in graph.node if node.op_type in ("Softmax", "LogSoftmax")]
    while pending:
        name = pending.pop()
        if name in visited or (node := producers.get(name)) is None:
            continue
        visited.add(name)
        if node.op_type in PRODUCT_OPS and not any(source in constants for source in node.input):
            scores.add(name)
        elif node.op_type in _SCORE_TO_SOFTMAX_OPS:
            pending += node.input
    return scores
