"""Rewrite RMS normalization in the operators and order that onnxruntime fuses.

ONNX has an operator for it from opset 23 on only. onnxruntime knows `x / sqrt(mean(x^2) + epsilon) * gamma`, with a
power and a division; Keras and TensorFlow write `x * (gamma * (1 / sqrt(mean(x * x) + epsilon)))`, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import Nodes


class _Root(NamedTuple):
    """`sqrt(mean(source^2) + epsilon)`."""

    source: str
    epsilon: str


def written(node: onnx.NodeProto, nodes: Nodes) -> list[onnx.NodeProto] | None:
    """Return operators that make what a node makes, or None where the node ends no RMS normalization."""
    for source, inverse, gamma in _factors(node, nodes):
        root = _root(nodes.only_input(nodes.only_input(inverse, "Reciprocal"), "Sqrt"), nodes)
        if root is not None and root.source == source and nodes.is_along_last_axis(gamma, source):
            return _operators(node, root, nodes.as_vector(gamma), nodes)
    return None


def _factors(node: onnx.NodeProto, nodes: Nodes) -> Iterator[tuple[str, ...]]:
    """Yield the three factors whose product a node makes, in any order."""
    if node.op_type == "Mul":
        for one, product in nodes.both_orders(node):
            for two, three in nodes.both_orders(nodes.maker(product, "Mul")):
                yield from permutations((one, two, three))


def _root(positive: str | None, nodes: Nodes) -> _Root | None:
    """Return what the sum under a root is made of, or None where it is not that of an RMS normalization."""
    for mean, epsilon in nodes.both_orders(None if positive is None else nodes.maker(positive, "Add")):
        number, square = nodes.constant(epsilon), nodes.averaged(mean)
        source = None if square is None else _squared(square, nodes)
        if number is not None and number.shape == () and source is not None:
            return _Root(source, epsilon)
    return None


def _squared(name: str, nodes: Nodes) -> str | None:
    """Return what a tensor is the square of."""
    node = nodes.maker(name, "Mul", "Pow")
    if node is None:
        return None
    exponent = nodes.constant(node.input[1])
    is_square = (
        node.input[0] == node.input[1] if node.op_type == "Mul" else exponent is not None and exponent.tolist() == 2
    )
    return str(node.input[0]) if is_square else None


def _operators(node: onnx.NodeProto, root: _Root, gamma: str, nodes: Nodes) -> list[onnx.NodeProto]:
    """Return the operators that onnxruntime knows; what is new has numbers for names, as what tf2onnx makes has."""
    result = node.output[0]
    square, mean, positive, divisor, quotient, exponent, axes = (f"{result}__{number}" for number in range(7))
    nodes.added |= {exponent: np.array(2, np.float32), axes: np.array([-1])}
    lines = [
        ("Pow", root.source, exponent, square),
        ("ReduceMean", square, axes, mean),
        ("Add", mean, root.epsilon, positive),  # in this order, or it takes another epsilon
        ("Sqrt", positive, divisor),
        ("Div", root.source, divisor, quotient),
        ("Mul", quotient, gamma, result),
    ]
    names = [*(f"{node.name}__{number}" for number in range(5)), node.name]
    return [
        helper.make_node(op, takes, [gives], name=name) for name, (op, *takes, gives) in zip(names, lines, strict=True)
    ]
