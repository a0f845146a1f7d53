"""Operators that may run in float16."""

from __future__ import annotations

from collections.abc import Container

import onnx

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
TABLES = frozenset({"Gather"})  # an embedding: a lookup in a constant

# These neither grow a number much nor depend on its last digits.
_LAY_OUT = {"DepthToSpace", "Flatten", "Identity", "Reshape", "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze"}
_TAKE = {"Gather", "GatherElements", "GatherND", "MaxPool", "ReverseSequence", "Slice", "Split"}
_JOIN = {"Concat", "Expand", "Pad", "Tile"}
_COMBINE = {"Add", "Clip", "LeakyRelu", "Mul", "Neg", "PRelu", "Relu", "Sigmoid", "Sub", "Tanh", "Where"}
FOLLOWERS = frozenset(_LAY_OUT | _TAKE | _JOIN | _COMBINE)

_ON_THE_WAY = FOLLOWERS | {"Div", "Max", "Min"}  # from scores to softmax: scale, mask, soft cap


def score_products(graph: onnx.GraphProto, constants: Container[str]) -> set[str]:
    """Return the outputs of the products of two computed tensors that a softmax of this graph takes.

    They are attention scores: unlike an output they may be 1e4 and more, where float16 overflows or has no digit left
    behind the point.
    """
    made_by = {name: node for node in graph.node for name in node.output}
    found: set[str] = set()
    pending = [node.input[0] for node in graph.node if node.op_type in ("Softmax", "LogSoftmax")]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        node = made_by.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type in PRODUCTS and not any(each in constants for each in node.input):
            found.add(name)
        elif node.op_type in _ON_THE_WAY:
            pending += node.input
    return found
