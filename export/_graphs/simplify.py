"""Write in one operator, or as onnxruntime makes one of it, what tf2onnx writes in many.

These are products over the last axis, layer normalization and RMS normalization, and hard sigmoids.
Where numbers are few, such a layer costs more for its shapes than for its product; where they are many, onnxruntime
goes over them once, not seven times.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from . import hard_sigmoid, last_axis_product, layer_normalization, rms_normalization
from .edits import drop_unread, refill
from .patterns import Nodes, inferred, views

RULES = (
    last_axis_product.written,
    layer_normalization.written,
    rms_normalization.written,
    hard_sigmoid.written,
)


def simplify(model: onnx.ModelProto) -> None:
    """Replace, in place, what the rules know by what they write, in bodies too, and drop what nothing reads then."""
    found = [_simplify(nodes) for nodes in reversed([*views(model.graph, inferred(model))])]  # bodies are copied with
    if any(found):
        drop_unread(model.graph)


def _simplify(nodes: Nodes) -> bool:
    """Tell whether anything of a graph was replaced."""
    kept = [(node, _written(node, nodes)) for node in nodes.graph.node]
    nodes.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in nodes.added.items())
    is_new = any(written is not None for _, written in kept)
    if is_new:
        refill(nodes.graph.node, (each for node, written in kept for each in ([node] if written is None else written)))
    return is_new


def _written(node: onnx.NodeProto, nodes: Nodes) -> list[onnx.NodeProto] | None:
    """Return what a rule writes in the place of a node, if one knows it; the last makes what the node makes."""
    return next((written for rule in RULES if (written := rule(node, nodes)) is not None), None)
