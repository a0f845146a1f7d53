"""Apply pattern rewrite rules to a graph and its subgraphs.

These are products over the last axis, layer normalization and RMS normalization, and hard sigmoids.
Where numbers are few, such a layer costs more for its shapes than for its product; where they are many, onnxruntime
goes over them once, not seven times.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import numpy_helper

from .._onnx.graph_edits import drop_unread, refill
from .._onnx.graph_index import Nodes, Rule, inferred, views
from .._onnx.traced_model import Weights
from .._onnx.traversal import all_nodes
from .._passes import flush_denormals, hard_sigmoid, layer_normalization, rms_normalization, rotary_embedding, tensordot

RULES: Sequence[Rule] = (
    tensordot.written,
    layer_normalization.written,
    rms_normalization.written,
    hard_sigmoid.written,
    flush_denormals.written,
)
OF_ONNXRUNTIME: Sequence[Rule] = (rotary_embedding.written,)  # which write operators that ONNX does not have


def simplify(model: onnx.ModelProto, rules: Sequence[Rule] = RULES, weights: Weights | None = None) -> None:
    """Replace, in place, what the rules know by what they write, in bodies too, and drop what nothing reads then.

    Args:
        model: The model.
        rules: The rules.
        weights: Those of the model that are neither inputs nor initializers.
    """
    known = [*views(model.graph, inferred(model, weights))]
    found = [_simplify(nodes, rules) for nodes in reversed(known)]  # bodies are copied with what is around them
    if any(found):
        drop_unread(model.graph)
        known_domains = {each.domain for each in model.opset_import}
        new = {node.domain for node in all_nodes(model.graph)} - known_domains
        model.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in sorted(new))


def _simplify(nodes: Nodes, rules: Sequence[Rule]) -> bool:
    """Tell whether anything of a graph was replaced."""
    kept = [(node, _written(node, nodes, rules)) for node in nodes.graph.node]
    nodes.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in nodes.added.items())
    is_new = any(written is not None for _, written in kept)
    if is_new:
        refill(nodes.graph.node, (each for node, written in kept for each in ([node] if written is None else written)))
    return is_new


def _written(node: onnx.NodeProto, nodes: Nodes, rules: Sequence[Rule]) -> list[onnx.NodeProto] | None:
    """Return what a rule writes in the place of a node, if one knows it; the last makes what the node makes."""
    return next((written for rule in rules if (written := rule(node, nodes)) is not None), None)
