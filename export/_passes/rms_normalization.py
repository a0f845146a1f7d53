"""Rewrite RMS normalization in the operators and order that onnxruntime fuses.

ONNX has an operator for it from opset 23 on. onnxruntime recognizes `x / sqrt(mean(x^2) + epsilon) * gamma`, with a
power and a division.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import Nodes
from .patterns import Match, Op, Rule

# x * (gamma * (1 / sqrt(mean(x^2) + epsilon))), the three factors in any order
MEAN = Op("ReduceMean", (Op("Mul", "x", "x"), Op("Pow", "x", "exponent")), "axes")
INVERSE = Op("Reciprocal", Op("Sqrt", Op("Add", MEAN, "epsilon")))
PATTERN = (
    Op("Mul", "x", Op("Mul", INVERSE, "gamma")),
    Op("Mul", INVERSE, Op("Mul", "x", "gamma")),
    Op("Mul", "gamma", Op("Mul", INVERSE, "x")),
)


def _check(match: Match, nodes: Nodes) -> str:
    epsilon = nodes.constant(match["epsilon"])
    exponent = nodes.constant(match["exponent"]) if "exponent" in match else np.array(2)
    if not nodes.is_mean_over_last_axis(match[MEAN]):
        return "the mean is not over the last axis"
    if exponent is None or exponent.tolist() != 2:
        return "the exponent is not 2"
    if epsilon is None or epsilon.shape != ():
        return "epsilon is not a constant scalar"
    if not nodes.is_along_last_axis(match["gamma"], match["x"]):
        return "gamma is not a constant vector along the last axis"
    return ""


def _rewrite(node: onnx.NodeProto, match: Match, nodes: Nodes) -> list[onnx.NodeProto]:
    result = node.output[0]
    # names that end in numbers, as those of tf2onnx do: these get names of layers later
    square, mean, positive, divisor, quotient, exponent, axes = (f"{result}__{number}" for number in range(7))
    nodes.added |= {exponent: np.array(2, np.float32), axes: np.array([-1])}
    lines = [
        ("Pow", match["x"], exponent, square),
        ("ReduceMean", square, axes, mean),
        ("Add", mean, match["epsilon"], positive),  # in the other order onnxruntime uses another epsilon
        ("Sqrt", positive, divisor),
        ("Div", match["x"], divisor, quotient),
        ("Mul", quotient, nodes.as_vector(match["gamma"]), result),
    ]
    names = [*(f"{node.name}__{number}" for number in range(5)), node.name]
    return [
        helper.make_node(op, inputs, [output], name=name)
        for name, (op, *inputs, output) in zip(names, lines, strict=True)
    ]


RULE = Rule("RMS normalization", PATTERN, _check, _rewrite)
