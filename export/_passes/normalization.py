"""Rewrite layer normalization as `LayerNormalization`, and RMS normalization as operators that onnxruntime fuses."""

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import GraphIndex
from .patterns import Match, Op, Rule

# Layer normalization: x * factor + (beta - mean * factor), with factor = gamma / sqrt(mean((x - mean)^2) + epsilon);
# beta may be absent.
MEAN = Op("ReduceMean", "x", "axes")
CENTERED = Op("Sub", "x", MEAN)
VARIANCE = Op("ReduceMean", Op("Mul", CENTERED, CENTERED), "axes of variance")
FACTOR = Op("Mul", Op("Reciprocal", Op("Sqrt", Op("Add", VARIANCE, "epsilon"))), "gamma")
NEGATIVE = Op("Mul", Op("Neg", MEAN), FACTOR)
LAYER = Op("Add", Op("Mul", "x", FACTOR), (NEGATIVE, Op("Add", NEGATIVE, "beta")))

# RMS normalization: x * gamma * (1 / sqrt(mean(x^2) + epsilon)), the three factors in any order. ONNX has an operator
# for it from opset 23 only. onnxruntime fuses x / sqrt(mean(x^2) + epsilon) * gamma, with `Pow` and `Div`.
MEAN_SQUARE = Op("ReduceMean", (Op("Mul", "x", "x"), Op("Pow", "x", "exponent")), "axes")
INVERSE = Op("Reciprocal", Op("Sqrt", Op("Add", MEAN_SQUARE, "epsilon")))
RMS = (
    Op("Mul", "x", Op("Mul", INVERSE, "gamma")),
    Op("Mul", INVERSE, Op("Mul", "x", "gamma")),
    Op("Mul", "gamma", Op("Mul", INVERSE, "x")),
)


def _check(match: Match, nodes: GraphIndex) -> str:
    epsilon = nodes.get_constant(match["epsilon"])
    exponent = nodes.get_constant(match["exponent"]) if "exponent" in match else np.array(2)
    if not all(nodes.is_mean_over_last_axis(match[op]) for op in (MEAN, VARIANCE, MEAN_SQUARE) if op in match):
        return "a mean is not over the last axis"
    if exponent is None or exponent.tolist() != 2:
        return "the exponent is not 2"
    if epsilon is None or epsilon.size != 1 or (MEAN_SQUARE in match and epsilon.ndim):
        return "epsilon is not a constant scalar"
    if not all(nodes.is_along_last_axis(match[name], match["x"]) for name in ("gamma", "beta") if name in match):
        return "gamma or beta is not a constant vector along the last axis"
    return ""


def _rewrite_layer(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    """Return a `LayerNormalization` of `x - mean`."""
    # Not of x: releases of onnxruntime before 1.27 compute the variance as mean(x^2) - mean(x)^2, which cancels if the
    # mean is large. The mean of `x - mean` is 0 except for rounding.
    inputs = [match[CENTERED], *(nodes.reshape_to_vector(match[name]) for name in ("gamma", "beta") if name in match)]
    options = {"axis": -1, "epsilon": nodes.get_scalar(match["epsilon"])}
    return [helper.make_node("LayerNormalization", inputs, node.output, name=node.name, **options)]


def _rewrite_rms(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    result = node.output[0]
    # `node_names.py` replaces names that end in numbers, such as those of tf2onnx, by names of layers.
    square, mean, positive, divisor, quotient, exponent, axes = (f"{result}__{number}" for number in range(7))
    nodes.new_initializers |= {exponent: np.array(2, np.float32), axes: np.array([-1])}
    lines = [
        ("Pow", match["x"], exponent, square),
        ("ReduceMean", square, axes, mean),
        ("Add", mean, match["epsilon"], positive),  # in the other order the fusion uses another epsilon
        ("Sqrt", positive, divisor),
        ("Div", match["x"], divisor, quotient),
        ("Mul", quotient, nodes.reshape_to_vector(match["gamma"]), result),
    ]
    names = [*(f"{node.name}__{number}" for number in range(5)), node.name]
    return [
        helper.make_node(op, inputs, [output], name=name)
        for name, (op, *inputs, output) in zip(names, lines, strict=True)
    ]


LAYER_RULE = Rule("layer normalization", LAYER, _check, _rewrite_layer)
RMS_RULE = Rule("RMS normalization", RMS, _check, _rewrite_rms)
