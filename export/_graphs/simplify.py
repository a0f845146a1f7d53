"""Write in one operator what tf2onnx writes in many: a product over the last axis, and layer normalization.

Where numbers are few, such a layer costs more for its shapes than for its product; where they are many, onnxruntime
goes over them once and not seven times.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from . import last_axis_product, layer_normalization
from .edits import drop_unread
from .patterns import inferred, views

RULES = (last_axis_product.written, layer_normalization.written)


def simplify(model: onnx.ModelProto) -> None:
    """Replace, in place, what the rules know by one node, in bodies too, and drop what nothing reads then."""
    graphs = list(views(model.graph, inferred(model)))
    found = [
        (node, written)
        for nodes in graphs
        for node in nodes.graph.node
        for rule in RULES
        if (written := rule(node, nodes)) is not None
    ]
    for node, written in found:
        node.CopyFrom(written)
    for nodes in graphs:
        nodes.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in nodes.added.items())
    if found:
        drop_unread(model.graph)
