"""Rewrite layer normalization over the last axis as `LayerNormalization`.

The operator gets `x - mean`, whose mean is 0 but for rounding: releases of onnxruntime before 1.27 take the variance as
the mean of squares less the square of the mean, which leaves nothing where the mean is large.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx
from onnx import helper

from .._onnx.graph_index import Nodes


class _Factor(NamedTuple):
    """`gamma / sqrt(variance + epsilon)`, the variance that of `gap`, which is `source - mean`."""

    mean: str
    gap: str
    epsilon: float
    gamma: str


def written(node: onnx.NodeProto, nodes: Nodes) -> list[onnx.NodeProto] | None:
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
                or not all(nodes.is_along_last_axis(name, source) for name in (found.gamma, beta) if name)
            ):
                continue
            inputs = [found.gap, *(nodes.as_vector(name) for name in (found.gamma, beta) if name)]
            options = {"axis": -1, "epsilon": found.epsilon}
            return [helper.make_node("LayerNormalization", inputs, node.output, name=node.name, **options)]
    return None


def _factor(source: str, name: str, nodes: Nodes) -> _Factor | None:
    """Return what a factor is made of, or None where it is not that of a layer normalization of the source."""
    for inverse, gamma in nodes.both_orders(nodes.maker(name, "Mul")):
        root = nodes.only_input(nodes.only_input(inverse, "Reciprocal"), "Sqrt")
        for variance, epsilon in nodes.both_orders(None if root is None else nodes.maker(root, "Add")):
            number, gap = nodes.constant(epsilon), _gap(source, variance, nodes)
            if number is not None and number.size == 1 and gap is not None:
                return _Factor(gap.input[1], gap.output[0], number.item(), gamma)
    return None


def _gap(source: str, variance: str, nodes: Nodes) -> onnx.NodeProto | None:
    """Return the node that takes its mean from the source, if the variance is that of what it gives."""
    squares = nodes.averaged(variance)
    square = None if squares is None else nodes.maker(squares, "Mul")
    if square is None or square.input[0] != square.input[1]:
        return None
    gap = nodes.maker(square.input[0], "Sub")
    if gap is None or gap.input[0] != source or nodes.averaged(gap.input[1]) != source:
        return None
    return gap


def _beta(shift: str, mean: str, factor: str, nodes: Nodes) -> str | None:
    """Return the name of beta in `beta - mean * factor`, empty where it is absent, or None where it is not that."""
    for product, beta in ((shift, ""), *nodes.both_orders(nodes.maker(shift, "Add"))):
        for negative, other in nodes.both_orders(nodes.maker(product, "Mul")):
            if other == factor and nodes.only_input(negative, "Neg") == mean:
                return beta
    return None
