"""Flush denormal attention weights to zero after a masked softmax."""

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import GraphIndex
from .patterns import ANY, Match, Op, Rule

# A mask of -100, as in shifted windows, leaves weights of 4e-44. TensorFlow flushes denormal numbers to zero, and
# onnxruntime does so only with a session option: without this rule two Swin blocks took 1.3 to 1.5 times as long.
# The weight exp(score + mask - row maximum) is denormal if its exponent is between -103.3 and -87.3, the logarithms of
# the smallest denormal and the smallest normal float32. The range of masks allows for scores that differ by about 20.
MIN_NORMAL = np.finfo(np.float32).tiny
LOWEST_MASK, HIGHEST_MASK = -125.0, -70.0

# softmax(scores + mask), perhaps reshaped before the softmax
PATTERN = Op("Softmax", Op("Add", ANY, "mask", skip="Reshape"))


def _check(match: Match, nodes: GraphIndex) -> str:
    mask = nodes.get_constant(match["mask"])
    if mask is None or mask.dtype != np.float32 or not np.any((mask > LOWEST_MASK) & (mask < HIGHEST_MASK)):
        return f"no float32 constant between {LOWEST_MASK:g} and {HIGHEST_MASK:g} is added to the scores"
    return ""


def _rewrite(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    """Return the softmax, and a `Where` that replaces denormal weights by zero."""
    (output,) = node.output
    weights, is_denormal = f"{output}/softmax", f"{output}/less"
    smallest, zero = f"{output}/smallest", f"{output}/zero"
    nodes.new_initializers |= {smallest: np.array(MIN_NORMAL), zero: np.array(0, np.float32)}
    softmax = onnx.NodeProto()
    softmax.CopyFrom(node)
    softmax.output[:] = [weights]
    return [
        softmax,
        helper.make_node("Less", [weights, smallest], [is_denormal], f"{node.name}/less"),
        helper.make_node("Where", [is_denormal, zero, weights], [output], f"{node.name}/selected"),
    ]


RULE = Rule("denormal attention weights", PATTERN, _check, _rewrite)
