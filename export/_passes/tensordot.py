"""Rewrite `tf.tensordot` over the last axis (eight operators) as one `MatMul`.

TensorFlow makes a matrix of the leading axes, multiplies, and gives them back with a shape that it puts together when
it runs (`tf.tensordot`): eight operators.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import Nodes, Sizes


def written(node: onnx.NodeProto, nodes: Nodes) -> list[onnx.NodeProto] | None:
    """Return the `MatMul` that makes what a node makes, or None where the node ends no such product."""
    product = nodes.maker(node.input[0], "MatMul") if node.op_type == "Reshape" else None
    rows = None if product is None else nodes.maker(product.input[0], "Reshape")
    if product is None or rows is None:
        return None
    source, kernel = rows.input[0], product.input[1]
    sizes, of_kernel = nodes.sizes(source), nodes.sizes(kernel)
    target = nodes.constant(rows.input[1])
    if sizes is None or len(sizes) < 2 or of_kernel is None or len(of_kernel) != 2 or None in of_kernel:
        return None
    if target is None or target.tolist() != [-1, of_kernel[0]] or sizes[-1] not in (None, of_kernel[0]):
        return None
    if not _gives_axes_back(node.input[1], source, sizes, of_kernel[1], nodes):
        return None
    return [helper.make_node("MatMul", [source, kernel], node.output, name=node.name)]


def _gives_axes_back(target: str, source: str, sizes: Sizes, units: int | None, nodes: Nodes) -> bool:
    """Tell whether a shape is that of a tensor of these sizes with another last axis."""
    known = nodes.constant(target)
    if known is not None:
        of_last = sizes[-1] is not None  # else some of it may be moved to another axis
        return of_last and known.size == len(sizes) and known[-1] == units and _are(known[:-1], sizes[:-1])
    joined = nodes.maker(nodes.source_of(target, "Cast"), "Concat")
    if joined is None or len(joined.input) != 2:
        return False
    leading, last = nodes.maker(joined.input[0], "Gather"), nodes.constant(joined.input[1])
    shape = None if leading is None else nodes.maker(nodes.source_of(leading.input[0], "Cast"), "Shape")
    if leading is None or shape is None or last is None:
        return False
    axes = nodes.constant(leading.input[1])
    of_source = shape.input[0] == source and not shape.attribute
    return of_source and last.tolist() == [units] and axes is not None and axes.tolist() == [*range(len(sizes) - 1)]


def _are(target: np.ndarray, sizes: Sizes) -> bool:
    """Tell whether a reshape to a target, all elements kept, gives these sizes: one of them may be left to it."""
    left = [size for wanted, size in zip(target.tolist(), sizes, strict=True) if wanted != size]
    return not left or (len(left) == 1 and (target == -1).sum() == 1)
