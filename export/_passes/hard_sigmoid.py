"""Rewrite `clip(x + 3, 0, 6) / 6` as `HardSigmoid`."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from .._onnx.graph_index import GraphIndex
from .patterns import Match, Op, Rule

SIXTH = float(np.float32(1 / 6))

# clip(x + 3, 0, 6) divided by 6, or multiplied by 1 / 6. onnxruntime fuses `HardSigmoid`, and its product with x (hard
# swish), into the convolution before it, and keeps the blocked layout: MobileNetV3 runs in two thirds of the time.
CLIP = Op("Clip", Op("Add", "x", "three"), "zero", "six")
PATTERN = (Op("Mul", CLIP, "factor"), Op("Div", CLIP, "divisor"))


def _check(match: Match, nodes: GraphIndex) -> str:
    factor = (
        nodes.get_scalar(match["factor"]) if "factor" in match else 1 / (nodes.get_scalar(match["divisor"]) or math.inf)
    )
    if factor is None or not math.isclose(factor, SIXTH, rel_tol=1e-6):
        return "the clipped sum is not divided by 6"
    if [nodes.get_scalar(match[name]) for name in ("three", "zero", "six")] != [3, 0, 6]:
        return "the sum is not x + 3, clipped to 0 and 6"
    if nodes.get_elem_type(match[CLIP]) != TensorProto.FLOAT:
        return "the sum is not float32"
    if nodes.get_shape(match["x"]) is None or nodes.get_shape(match["x"]) != nodes.get_shape(match[CLIP]):
        return "the shape of x is unknown, or the sum has another shape"
    return ""


def _rewrite(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    return [helper.make_node("HardSigmoid", [match["x"]], node.output, node.name, alpha=SIXTH, beta=0.5)]


RULE = Rule("hard sigmoid", PATTERN, _check, _rewrite)
