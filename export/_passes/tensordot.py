"""Rewrite `tf.tensordot` over the last axis as one `MatMul`. Its operators are three, or eight with dynamic sizes."""

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import GraphIndex, StaticShape
from .patterns import ANY, Match, Op, Rule

# TensorFlow computes reshape(reshape(x, (-1, depth)) @ kernel, output_shape). The inner reshape, `INPUT_MATRIX`,
# merges the leading axes of x. The output shape is constant, or concat(shape(x)[axes], units) if x has dynamic sizes.
INPUT_MATRIX = Op("Reshape", "x", "matrix_shape")
SHAPE_NODE = Op("Shape", ANY, skip="Cast")
COMPUTED_SHAPE = Op("Concat", Op("Gather", SHAPE_NODE, "axes"), "units", skip="Cast")
PATTERN = Op("Reshape", Op("MatMul", INPUT_MATRIX, "kernel"), (COMPUTED_SHAPE, "shape"))


def _find_mismatch(match: Match, index: GraphIndex) -> str:
    x_shape, kernel_shape = index.get_shape(match["x"]), index.get_shape(match["kernel"])
    if x_shape is None or len(x_shape) < 2 or kernel_shape is None or len(kernel_shape) != 2 or None in kernel_shape:
        return "x has no known rank of at least 2, or the kernel is no matrix of known shape"
    depth, units = kernel_shape
    if not _is_constant(index, match["matrix_shape"], [-1, depth]) or x_shape[-1] not in (None, depth):
        return "the first reshape is not to (-1, depth)"
    if "shape" in match:
        is_expected = _is_output_shape(index.get_constant(match["shape"]), x_shape, units)
        return "" if is_expected else "the output shape is not the input shape with `units` as last size"
    shape_node = index.get_producer(match[SHAPE_NODE], "Shape")
    if shape_node is None or shape_node.input[0] != match["x"] or shape_node.attribute:
        return "the output shape is not computed from the input x"
    leading_axes = [*range(len(x_shape) - 1)]
    if not (_is_constant(index, match["axes"], leading_axes) and _is_constant(index, match["units"], [units])):
        return "the output shape does not consist of the leading axes of x and `units`"
    return ""


def _is_constant(index: GraphIndex, name: str, expected: list[int | None]) -> bool:
    array = index.get_constant(name)
    return array is not None and array.tolist() == expected


def _is_output_shape(sizes: np.ndarray | None, x_shape: StaticShape, units: int | None) -> bool:
    """Return True if `sizes` are those of `x_shape`, but with `units` as the last size; one other size may be -1."""
    # If the last size is unknown, a reshape may move elements between axes: x (2, 6) reshaped to (-1, 3) has 4 rows.
    if sizes is None or x_shape[-1] is None or sizes.size != len(x_shape) or sizes[-1] != units:
        return False
    return [size for size, x_size in zip(sizes[:-1].tolist(), x_shape, strict=False) if size != x_size] in ([], [-1])


def _rewrite(node: onnx.NodeProto, match: Match, index: GraphIndex) -> list[onnx.NodeProto]:
    return [helper.make_node("MatMul", [match["x"], match["kernel"]], node.output, name=node.name)]


RULE = Rule("tensordot", PATTERN, _find_mismatch, _rewrite)
