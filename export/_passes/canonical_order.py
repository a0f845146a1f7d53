"""Sort nodes, initializers and weights in an order that depends only on the graph.

The order of tf2onnx differs between processes, because tf2onnx stores nodes in sets and appends counters to names.
Initializers are constants inside the graph. Weights are outside of it, in `TracedModel.weights`.
"""

from collections.abc import Collection, Iterator, Sequence

import onnx

from .._onnx.graph_edits import replace_items
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_input_names, iter_subgraphs


def sort_reachable_nodes(traced_model: TracedModel) -> bool:
    """Sort nodes depth first and initializers by first reader, drop unreachable ones, and return True on a change."""
    return _sort_graph(traced_model.model.graph)


def sort_weights(traced_model: TracedModel) -> bool:
    """Sort weights by first reader, then unread weights by name; return True if the order changed."""
    previous_order = [*traced_model.weights]
    names = [*_sort_by_first_read(traced_model.model.graph, traced_model.weights), *sorted(previous_order)]
    traced_model.weights = {name: traced_model.weights[name] for name in dict.fromkeys(names)}
    return [*traced_model.weights] != previous_order


def _sort_graph(graph: onnx.GraphProto) -> bool:
    is_changed = any([_sort_graph(subgraph) for node in graph.node for subgraph in iter_subgraphs(node)])
    nodes = [*graph.node]
    sorted_indices = _sort_depth_first(nodes, [value.name for value in graph.output])
    replace_items(graph.node, (nodes[index] for index in sorted_indices))
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    names = _sort_by_first_read(graph, initializers)
    replace_items(graph.initializer, (initializers[name] for name in names))
    return is_changed or sorted_indices != [*range(len(nodes))] or names != [*initializers]


def _sort_by_first_read(graph: onnx.GraphProto, names: Collection[str]) -> list[str]:
    """Return those of `names` that a graph or its subgraphs read, by first reader, and then those that it outputs."""
    inputs = (name for node in graph.node for name in iter_input_names(node))
    return [name for name in dict.fromkeys((*inputs, *(value.name for value in graph.output))) if name in names]


def _sort_depth_first(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[int]:
    """Return the indices of the nodes that the outputs depend on, each producer before its consumers."""
    # The search is iterative, because chains of nodes are longer than Python's recursion limit.
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    producers_of_node = [[producers[name] for name in _iter_outer_names(node) if name in producers] for node in nodes]
    sorted_indices: dict[int, None] = {}
    for root in (producers[name] for name in outputs if name in producers):
        stack = [] if root in sorted_indices else [(root, iter(producers_of_node[root]))]
        while stack:
            index, remaining_producers = stack[-1]
            producer = next((producer for producer in remaining_producers if producer not in sorted_indices), None)
            if producer is None:
                sorted_indices[index] = None
                stack.pop()
            else:
                stack.append((producer, iter(producers_of_node[producer])))
    return [*sorted_indices]


def _iter_outer_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read, except those that the subgraphs themselves define."""
    yield from filter(None, node.input)
    for subgraph in iter_subgraphs(node):
        own_names = {value.name for value in (*subgraph.input, *subgraph.initializer)}
        own_names.update(name for node in subgraph.node for name in node.output)
        names_read = (name for node in subgraph.node for name in _iter_outer_names(node))
        yield from (name for name in (*names_read, *(value.name for value in subgraph.output)) if name not in own_names)
