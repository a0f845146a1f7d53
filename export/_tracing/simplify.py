"""Write in one operator what tf2onnx writes in many: a product over the last axis, and layer normalization.

Where numbers are few, such a layer costs more for its shapes than for its product; where they are many, onnxruntime
goes over them once and not seven times.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from . import last_axis_product, layer_normalization
from .nodes import Nodes, names_read

RULES = (last_axis_product.written, layer_normalization.written)


def simplify(model: onnx.ModelProto) -> None:
    """Replace, in place, what the rules know by one node, and drop what nothing reads then."""
    graph, nodes = model.graph, Nodes(model)
    found = [(node, written) for node in graph.node for rule in RULES if (written := rule(node, nodes)) is not None]
    for node, written in found:
        node.CopyFrom(written)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in nodes.added.items())
    if found:
        _drop_unread(graph)


def _drop_unread(graph: onnx.GraphProto) -> None:
    read = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            read.update(names_read(node))
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(reversed(kept))
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in read:
            del graph.initializer[index]
