"""Layer normalization over the last axis as ONNX's operator of that name, from the thirteen that tf2onnx writes.

The operator gets `x - mean`, whose mean is 0 but for rounding: releases of onnxruntime before 1.27 take the variance as
the mean of squares less the square of the mean, which leaves nothing where the mean is large.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from .patterns import Nodes, attribute


class _Factor(NamedTuple):
    """`gamma / sqrt(variance + epsilon)`, the variance that of `gap`, which is `source - mean`."""

    mean: str
    gap: str
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
            if (
                found is None
                or beta is None
                or not all(_fits(name, source, nodes) for name in (found.gamma, beta) if name)
            ):
                continue
            inputs = [found.gap, *(nodes.as_vector(name) for name in (found.gamma, beta) if name)]
            return helper.make_node(
                "LayerNormalization", inputs, node.output, name=node.name, axis=-1, epsilon=found.epsilon
            )
    return None


def _factor(source: str, name: str, nodes: Nodes) -> _Factor | None:
    """Return what a factor is made of, or None where it is not that of a layer normalization of the source."""
    for inverse, gamma in nodes.both_orders(nodes.maker(name, "Mul")):
        root = _only_input(_only_input(inverse, "Reciprocal", nodes), "Sqrt", nodes)
        for variance, epsilon in nodes.both_orders(None if root is None else nodes.maker(root, "Add")):
            number, gap = nodes.constant(epsilon), _gap(source, variance, nodes)
            if number is not None and number.size == 1 and gap is not None:
                return _Factor(gap.input[1], gap.output[0], number.item(), gamma)
    return None


def _gap(source: str, variance: str, nodes: Nodes) -> onnx.NodeProto | None:
    """Return the node that takes its mean from the source, if the variance is that of what it gives."""
    squares = _averaged(variance, nodes)
    square = None if squares is None else nodes.maker(squares, "Mul")
    if square is None or square.input[0] != square.input[1]:
        return None
    gap = nodes.maker(square.input[0], "Sub")
    if gap is None or gap.input[0] != source or _averaged(gap.input[1], nodes) != source:
        return None
    return gap


def _beta(shift: str, mean: str, factor: str, nodes: Nodes) -> str | None:
    """Return the name of beta in `beta - mean * factor`, empty where it is absent, or None where it is not that."""
    for product, beta in ((shift, ""), *nodes.both_orders(nodes.maker(shift, "Add"))):
        for negative, other in nodes.both_orders(nodes.maker(product, "Mul")):
            if other == factor and _only_input(negative, "Neg", nodes) == mean:
                return beta
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


def _fits(name: str, source: str, nodes: Nodes) -> bool:
    """Tell whether a tensor is a constant vector of float32 as long as the last axis; axes of one may stand before."""
    array, sizes = nodes.constant(name), nodes.sizes(source)
    if array is None or array.dtype != np.float32 or not sizes or array.ndim > len(sizes):
        return False
    return array.ndim > 0 and array.size == array.shape[-1] == sizes[-1]
