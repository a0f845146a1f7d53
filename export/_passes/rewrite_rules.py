"""Apply pattern rewrite rules to a graph and its subgraphs; a rule is a file like `hard_sigmoid.py`, listed below."""

# A rule replaces many operators by few. In small layers the operators that compute shapes take longer than the product;
# for large tensors one operator reads the memory once instead of seven times. Only the last node of a match is
# replaced; dead-code elimination removes the others, except those with other consumers.

import logging
from collections.abc import Sequence

import onnx
from onnx import helper, numpy_helper

from .._onnx.graph_edits import remove_dead_nodes, replace_items
from .._onnx.graph_index import GraphIndex, infer_shapes, iter_graph_indexes
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_nodes
from . import eye_like, flush_denormals, hard_sigmoid, normalization, rotary_embedding, tensordot
from .patterns import Matcher, Rule

# The order does not matter, because no two of these patterns end in the same node.
RULES = (
    tensordot.RULE,
    normalization.LAYER_RULE,
    normalization.RMS_RULE,
    hard_sigmoid.RULE,
    flush_denormals.RULE,
    eye_like.RULE,
)
ONNXRUNTIME_RULES = (rotary_embedding.RULE,)  # write operators of the domain com.microsoft

_LOG = logging.getLogger(__name__)


def apply_rules(traced: TracedModel, rules: Sequence[Rule] = RULES) -> bool:
    """Rewrite each match of a rule in a graph and its subgraphs, and remove dead nodes."""
    model = traced.model
    indexes = [*iter_graph_indexes(model.graph, infer_shapes(model, traced.weights))]
    # Subgraphs first: `replace_items` copies the nodes of a graph, so an index of a subgraph would go stale.
    changes = [_rewrite_graph(nodes, rules) for nodes in reversed(indexes)]
    if not any(changes):
        return False
    remove_dead_nodes(model.graph)
    new_domains = {node.domain for node in iter_nodes(model.graph)} - {opset.domain for opset in model.opset_import}
    model.opset_import.extend(helper.make_opsetid(domain, 1) for domain in sorted(new_domains))
    return True


def _rewrite_graph(nodes: GraphIndex, rules: Sequence[Rule]) -> bool:
    replacements = [_apply_first_match(node, nodes, rules) for node in nodes.graph.node]
    nodes.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in nodes.new_initializers.items()
    )
    if not any(replacements):
        return False
    pairs = zip(nodes.graph.node, replacements, strict=True)
    replace_items(nodes.graph.node, [new_node for node, replacement in pairs for new_node in replacement or [node]])
    return True


def _apply_first_match(node: onnx.NodeProto, nodes: GraphIndex, rules: Sequence[Rule]) -> list[onnx.NodeProto] | None:
    """Return the replacement of a node by the first rule that matches, or None."""
    for rule in rules:
        matcher = Matcher(nodes)
        reasons: list[str] = []
        for match in matcher.find_matches(rule.pattern, node.output[0], {}):
            reason = rule.check(match, nodes)
            if not reason:
                return rule.rewrite(node, match, nodes)
            reasons.append(reason)
        if reasons or matcher.num_matched > 1:  # more than the last node of the pattern
            _LOG.debug("Rule %s: no match at node %s: %s", rule.name, node.name, [*reasons, matcher.reason][0])
    return None
