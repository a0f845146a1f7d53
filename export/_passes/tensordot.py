"""Rewrite `tf.tensordot` over the last axis, eight operators, as one `MatMul`.

TensorFlow reshapes the leading axes to one, multiplies two matrices, and restores the axes by a shape that it computes
at run time.
"""

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import Nodes, Sizes
from .patterns import ANY, Match, Op, Rule

# reshape(reshape(x, (-1, depth)) @ kernel, shape), with shape constant or concat(shape(x)[axes], units)
MATRIX = Op("Reshape", "x", "target")
SHAPE = Op("Shape", ANY, behind="Cast")
COMPUTED_SHAPE = Op("Concat", Op("Gather", SHAPE, "axes"), "units", behind="Cast")
PATTERN = Op("Reshape", Op("MatMul", MATRIX, "kernel"), (COMPUTED_SHAPE, "shape"))


def _check(match: Match, nodes: Nodes) -> str:
    x, kernel, target = nodes.sizes(match["x"]), nodes.sizes(match["kernel"]), nodes.constant(match["target"])
    if x is None or len(x) < 2 or kernel is None or len(kernel) != 2 or None in kernel:
        return "ranks or the shape of the kernel are unknown"
    if target is None or target.tolist() != [-1, kernel[0]] or x[-1] not in (None, kernel[0]):
        return "the first reshape is not to rows as long as the last axis"
    units = kernel[1]
    if "shape" in match:
        return (
            ""
            if _is_output_shape(nodes.constant(match["shape"]), x, units)
            else "the shape of the output is not that of the input with another last axis"
        )
    shape = nodes.maker(match[SHAPE], "Shape")
    axes, last_size = nodes.constant(match["axes"]), nodes.constant(match["units"])
    if shape is None or shape.input[0] != match["x"] or shape.attribute:
        return "the last shape is not of the first tensor"
    if axes is None or axes.tolist() != [*range(len(x) - 1)] or last_size is None or last_size.tolist() != [units]:
        return "the last shape has other leading axes or another last axis"
    return ""


def _is_output_shape(shape: np.ndarray | None, x: Sizes, units: int | None) -> bool:
    """Return whether a constant is the shape of `x` with another last axis, one axis of which may be -1."""
    # with an unknown last axis of x, some of it may have moved to another axis
    if shape is None or x[-1] is None or shape.size != len(x) or shape[-1] != units:
        return False
    return [number for number, size in zip(shape[:-1].tolist(), x, strict=False) if number != size] in ([], [-1])


def _rewrite(node: onnx.NodeProto, match: Match, nodes: Nodes) -> list[onnx.NodeProto]:
    return [helper.make_node("MatMul", [match["x"], match["kernel"]], node.output, name=node.name)]


RULE = Rule("tensordot", PATTERN, _check, _rewrite)
