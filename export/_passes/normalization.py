"""Rewrite layer normalization as `LayerNormalization`, and RMS normalization in the operators that onnxruntime fuses.

ONNX has an operator for RMS normalization from opset 23 on. onnxruntime recognizes `x / sqrt(mean(x^2) + epsilon) *
gamma`, with a power and a division.
"""

import numpy as np
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
LAYER = Op("Add", Op("Mul", "x", FACTOR), (NEGATIVE, Op("Add", NEGATIVE, "beta")))

# x * (gamma * (1 / sqrt(mean(x^2) + epsilon))), the three factors in any order
MEAN_SQUARE = Op("ReduceMean", (Op("Mul", "x", "x"), Op("Pow", "x", "exponent")), "axes")
INVERSE = Op("Reciprocal", Op("Sqrt", Op("Add", MEAN_SQUARE, "epsilon")))
RMS = (
    Op("Mul", "x", Op("Mul", INVERSE, "gamma")),
    Op("Mul", INVERSE, Op("Mul", "x", "gamma")),
    Op("Mul", "gamma", Op("Mul", INVERSE, "x")),
)


def _check(match: Match, nodes: Nodes) -> str:
    epsilon = nodes.constant(match["epsilon"])
    exponent = nodes.constant(match["exponent"]) if "exponent" in match else np.array(2)
    if not all(nodes.is_mean_over_last_axis(match[op]) for op in (MEAN, VARIANCE, MEAN_SQUARE) if op in match):
        return "a mean is not over the last axis"
    if exponent is None or exponent.tolist() != 2:
        return "the exponent is not 2"
    if epsilon is None or epsilon.size != 1 or (MEAN_SQUARE in match and epsilon.ndim):
        return "epsilon is not one constant number"
    if not all(nodes.is_along_last_axis(match[name], match["x"]) for name in ("gamma", "beta") if name in match):
        return "gamma or beta is not a constant vector along the last axis"
    return ""


def _layer(node: onnx.NodeProto, match: Match, nodes: Nodes) -> list[onnx.NodeProto]:
    """Return a `LayerNormalization` of `x - mean`, whose mean is 0 except for rounding.

    Releases of onnxruntime before 1.27 compute the variance as the mean of squares minus the square of the mean, which
    cancels if the mean is large.
    """
    inputs = [match[CENTERED], *(nodes.as_vector(match[name]) for name in ("gamma", "beta") if name in match)]
    options = {"axis": -1, "epsilon": nodes.number(match["epsilon"])}
    return [helper.make_node("LayerNormalization", inputs, node.output, name=node.name, **options)]


def _rms(node: onnx.NodeProto, match: Match, nodes: Nodes) -> list[onnx.NodeProto]:
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


LAYER_RULE = Rule("layer normalization", LAYER, _check, _layer)
RMS_RULE = Rule("RMS normalization", RMS, _check, _rms)
