"""Write hard sigmoids, `clip(x + 3, 0, 6) / 6`, as the operator that ONNX has for them.

With the product with `x` that makes them swishes, onnxruntime takes it into the convolution before it, which it then
need not leave its own layout for: MobileNetV3 runs in two thirds of the time.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from .._onnx.graph_index import Nodes

SIXTH = float(np.float32(1 / 6))


def written(node: onnx.NodeProto, nodes: Nodes) -> list[onnx.NodeProto] | None:
    """Return a `HardSigmoid` in the place of what scales a clipped sum."""
    for clipped, factor in [*nodes.both_orders(node)] if node.op_type in ("Mul", "Div") else ():
        clip, number = nodes.maker(clipped, "Clip"), nodes.number(factor)
        if node.op_type == "Div" and (clipped != node.input[0] or not number):
            continue
        scale = number and (1 / number if node.op_type == "Div" else number)
        if clip is None or scale is None or not math.isclose(scale, SIXTH, rel_tol=1e-6):
            continue
        if [nodes.number(name) for name in clip.input[1:]] != [0, 6] or nodes.kind(clipped) != TensorProto.FLOAT:
            continue
        for moved, three in nodes.both_orders(nodes.maker(clip.input[0], "Add")):
            if nodes.number(three) == 3 and nodes.sizes(moved) == nodes.sizes(clipped) is not None:
                return [helper.make_node("HardSigmoid", [moved], node.output, node.name, alpha=SIXTH, beta=0.5)]
    return None
