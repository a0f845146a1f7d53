"""Flush denormal attention weights to zero after a masked softmax.

A mask of -100, as in shifted windows, leaves weights of 4e-44. TensorFlow flushes denormal numbers to zero; onnxruntime
does so only with a session option, and a pair of Swin blocks took 1.3 to 1.5 times as long without that option.
"""

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import Nodes
from .patterns import ANY, Match, Op, Rule

MIN_NORMAL = np.finfo(np.float32).tiny
DENORMAL_MASK_RANGE = (
    -125.0,
    -70.0,
)  # with scores about 20 apart, exponentials of these numbers are above 0 and below `SMALLEST`

# softmax(scores + mask), perhaps reshaped before the softmax
PATTERN = Op("Softmax", Op("Add", ANY, "mask", behind="Reshape"))


def _check(match: Match, nodes: Nodes) -> str:
    mask = nodes.constant(match["mask"])
    if (
        mask is None
        or mask.dtype != np.float32
        or not np.any((mask > DENORMAL_MASK_RANGE[0]) & (mask < DENORMAL_MASK_RANGE[1]))
    ):
        return f"no float32 constant between {DENORMAL_MASK_RANGE[0]:g} and {DENORMAL_MASK_RANGE[1]:g} is added to the scores"
    return ""


def _rewrite(node: onnx.NodeProto, match: Match, nodes: Nodes) -> list[onnx.NodeProto]:
    """Return the softmax, and a selection of the weights that are not denormal."""
    (output,) = node.output
    weights, is_denormal = f"{output}/softmax", f"{output}/less"
    smallest, zero = f"{output}/smallest", f"{output}/zero"
    nodes.added |= {smallest: np.array(MIN_NORMAL), zero: np.array(0, np.float32)}
    softmax = onnx.NodeProto()
    softmax.CopyFrom(node)
    softmax.output[:] = [weights]
    return [
        softmax,
        helper.make_node("Less", [weights, smallest], [is_denormal], f"{node.name}/less"),
        helper.make_node("Where", [is_denormal, zero, weights], [output], f"{node.name}/selected"),
    ]


RULE = Rule("denormal attention weights", PATTERN, _check, _rewrite)
