"""Rewrite `tf.tensordot` over the last axis, eight operators, as one `MatMul`."""

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import GraphIndex, StaticShape
from .patterns import ANY, Match, Op, Rule

# TensorFlow reshapes the leading axes to one, multiplies two matrices, and restores the axes by a constant shape, or by
# one that it computes when the model runs: reshape(reshape(x, (-1, depth)) @ kernel, concat(shape(x)[axes], units)).
MATRIX = Op("Reshape", "x", "target")
SHAPE = Op("Shape", ANY, skip="Cast")
COMPUTED_SHAPE = Op("Concat", Op("Gather", SHAPE, "axes"), "units", skip="Cast")
PATTERN = Op("Reshape", Op("MatMul", MATRIX, "kernel"), (COMPUTED_SHAPE, "shape"))


def _check(match: Match, nodes: GraphIndex) -> str:
    x, kernel, target = (
        nodes.get_shape(match["x"]),
        nodes.get_shape(match["kernel"]),
        nodes.get_constant(match["target"]),
    )
    if x is None or len(x) < 2 or kernel is None or len(kernel) != 2 or None in kernel:
        return "ranks or the shape of the kernel are unknown"
    if target is None or target.tolist() != [-1, kernel[0]] or x[-1] not in (None, kernel[0]):
        return "the target of the first reshape is not (-1, depth)"
    units = kernel[1]
    if "shape" in match:
        if not _is_output_shape(nodes.get_constant(match["shape"]), x, units):
            return "the output shape is not the input shape with `units` as last size"
        return ""
    shape = nodes.get_producer(match[SHAPE], "Shape")
    axes, last_size = nodes.get_constant(match["axes"]), nodes.get_constant(match["units"])
    if shape is None or shape.input[0] != match["x"] or shape.attribute:
        return "the output shape is not computed from the input x"
    if axes is None or axes.tolist() != [*range(len(x) - 1)] or last_size is None or last_size.tolist() != [units]:
        return "the output shape does not consist of the leading axes of x and `units`"
    return ""


def _is_output_shape(shape: np.ndarray | None, x: StaticShape, units: int | None) -> bool:
    """Return True if a constant is the shape of `x` with `units` as last size; one other size may be -1."""
    # If the last size of x is unknown, the reshapes could move a factor of it to another axis.
    if shape is None or x[-1] is None or shape.size != len(x) or shape[-1] != units:
        return False
    return [number for number, size in zip(shape[:-1].tolist(), x, strict=False) if number != size] in ([], [-1])


def _rewrite(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    return [helper.make_node("MatMul", [match["x"], match["kernel"]], node.output, name=node.name)]


RULE = Rule("tensordot", PATTERN, _check, _rewrite)
