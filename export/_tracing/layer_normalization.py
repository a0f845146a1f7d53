"""Layer normalization over the last axis as ONNX's operator of that name, from the thirteen that tf2onnx writes.

Keras computes `x * s + (beta - mean * s)` with `s = gamma / sqrt(variance + epsilon)`; the operator subtracts the mean
first, which loses fewer digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from .nodes import Nodes, attribute


class _Factor(NamedTuple):
    """`gamma / sqrt(variance + epsilon)`, the variance about `mean`."""

    mean: str
    epsilon: float
    gamma: str


def written(node: onnx.NodeProto, nodes: Nodes) -> onnx.NodeProto | None:
    """Return the operator that makes what a node makes, or None where the node ends no layer normalization."""
    if node.op_type != "Add":
        return None
    for scaled, shift in nodes.both_orders(node):
        for source, factor in nodes.both_orders(nodes.maker(scaled, "Mul")):
            found = _factor(source, factor, nodes)
            beta = None if found is None else _beta(shift, found.mean, factor, nodes)
            if found is None or beta is None:
                continue
            inputs = [source, *(nodes.as_vector(name) for name in (found.gamma, beta) if name)]
            return helper.make_node(
                "LayerNormalization", inputs, node.output, name=node.name, axis=-1, epsilon=found.epsilon
            )
    return None


def _factor(source: str, name: str, nodes: Nodes) -> _Factor | None:
    """Return what a factor is made of, or None where it is not that of a layer normalization of the source."""
    for inverse, gamma in nodes.both_orders(nodes.maker(name, "Mul")):
        root = _only_input(_only_input(inverse, "Reciprocal", nodes), "Sqrt", nodes)
        for variance, epsilon in nodes.both_orders(None if root is None else nodes.maker(root, "Add")):
            number, mean = nodes.constant(epsilon), _mean_of_squares(source, variance, nodes)
            if number is not None and number.size == 1 and mean is not None and _is_vector(gamma, nodes):
                return _Factor(mean, number.item(), gamma)
    return None


def _mean_of_squares(source: str, variance: str, nodes: Nodes) -> str | None:
    """Return the name of the mean that a variance of the source is about."""
    squares = _averaged(variance, nodes)
    square = None if squares is None else nodes.maker(squares, "Mul")
    if square is None or square.input[0] != square.input[1]:
        return None
    gap = nodes.maker(square.input[0], "Sub")
    if gap is None or gap.input[0] != source or _averaged(gap.input[1], nodes) != source:
        return None
    return str(gap.input[1])


def _beta(shift: str, mean: str, factor: str, nodes: Nodes) -> str | None:
    """Return the name of beta in `beta - mean * factor`, empty where it is absent, or None where it is not that."""
    for product, beta in ((shift, ""), *nodes.both_orders(nodes.maker(shift, "Add"))):
        for negative, other in nodes.both_orders(nodes.maker(product, "Mul")):
            if other == factor and _only_input(negative, "Neg", nodes) == mean:
                return beta if not beta or _is_vector(beta, nodes) else None
    return None


def _averaged(name: str, nodes: Nodes) -> str | None:
    """Return what a tensor is the mean of over the last axis, which stays."""
    node = nodes.maker(name, "ReduceMean")
    axes = None if node is None or len(node.input) < 2 else nodes.constant(node.input[1])
    if node is None or axes is None or axes.size != 1 or not attribute(node, "keepdims", 1):
        return None
    sizes = nodes.sizes(node.input[0])
    is_last = axes.item() == -1 or (sizes is not None and axes.item() == len(sizes) - 1)
    return str(node.input[0]) if is_last else None


def _only_input(name: str | None, op: str, nodes: Nodes) -> str | None:
    node = None if name is None else nodes.maker(name, op)
    return None if node is None else str(node.input[0])


def _is_vector(name: str, nodes: Nodes) -> bool:
    """Tell whether a tensor is a constant vector of float32, whatever axes of one stand before."""
    array = nodes.constant(name)
    return array is not None and array.dtype == np.float32 and array.ndim > 0 and array.size == array.shape[-1]
