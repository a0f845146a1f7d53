"""Rewrite layer normalization over the last axis as `LayerNormalization`."""

from __future__ import annotations

import onnx
from onnx import helper

from .._onnx.graph_index import Nodes
from .patterns import Match, Op, Rule

# x * factor + (beta - mean * factor), with factor = gamma / sqrt(mean((x - mean)^2) + epsilon); beta may be absent
MEAN = Op("ReduceMean", "x", "axes")
CENTERED = Op("Sub", "x", MEAN)
VARIANCE = Op("ReduceMean", Op("Mul", CENTERED, CENTERED), "axes of variance")
FACTOR = Op("Mul", Op("Reciprocal", Op("Sqrt", Op("Add", VARIANCE, "epsilon"))), "gamma")
NEGATIVE = Op("Mul", Op("Neg", MEAN), FACTOR)
PATTERN = Op("Add", Op("Mul", "x", FACTOR), (NEGATIVE, Op("Add", NEGATIVE, "beta")))


def _check(match: Match, nodes: Nodes) -> str:
    if not (nodes.is_mean_over_last_axis(match[MEAN]) and nodes.is_mean_over_last_axis(match[VARIANCE])):
        return "mean or variance is not over the last axis"
    if nodes.number(match["epsilon"]) is None:
        return "epsilon is not one constant number"
    vectors = [match[name] for name in ("gamma", "beta") if name in match]
    if not all(nodes.is_along_last_axis(name, match["x"]) for name in vectors):
        return "gamma or beta is not a constant vector along the last axis"
    return ""


def _rewrite(node: onnx.NodeProto, match: Match, nodes: Nodes) -> list[onnx.NodeProto]:
    """Return a `LayerNormalization` of `x - mean`, whose mean is 0 except for rounding.

    Releases of onnxruntime before 1.27 compute the variance as the mean of squares minus the square of the mean, which
    cancels if the mean is large.
    """
    vectors = [nodes.as_vector(match[name]) for name in ("gamma", "beta") if name in match]
    options = {"axis": -1, "epsilon": nodes.number(match["epsilon"])}
    return [helper.make_node("LayerNormalization", [match[CENTERED], *vectors], node.output, name=node.name, **options)]


RULE = Rule("layer normalization", PATTERN, _check, _rewrite)
