"""Sort nodes, initializers and weights in an order that depends only on the graph.

tf2onnx keeps nodes in sets and numbers names, so its own order differs between processes.
"""

from collections.abc import Collection, Iterator, Sequence

import onnx

from .._onnx.graph_edits import replace_items
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_input_names, iter_subgraphs


def sort_nodes(traced: TracedModel) -> bool:
    """Sort nodes depth first from the outputs, and initializers by first reader; remove unreachable ones."""
    return _sort_graph(traced.model.graph)


def sort_weights(traced: TracedModel) -> bool:
    """Sort weights in the order in which the graph reads them, unread weights last by name."""
    previous_order = [*traced.weights]
    names = [*_sort_by_first_read(traced.model.graph, traced.weights), *sorted(previous_order)]
    traced.weights = {name: traced.weights[name] for name in dict.fromkeys(names)}
    return [*traced.weights] != previous_order


def _sort_graph(graph: onnx.GraphProto) -> bool:
    is_changed = any([_sort_graph(inner) for node in graph.node for inner in iter_subgraphs(node)])
    nodes = [*graph.node]
    order = _sort_depth_first(nodes, [value.name for value in graph.output])
    replace_items(graph.node, (nodes[index] for index in order))
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    names = _sort_by_first_read(graph, initializers)
    replace_items(graph.initializer, (initializers[name] for name in names))
    return is_changed or order != [*range(len(nodes))] or names != [*initializers]


def _sort_by_first_read(graph: onnx.GraphProto, names: Collection[str]) -> list[str]:
    """Return those of `names` that a graph and its subgraphs read, by first occurrence, graph outputs last."""
    inputs = (name for node in graph.node for name in iter_input_names(node))
    return [name for name in dict.fromkeys((*inputs, *(value.name for value in graph.output))) if name in names]


def _sort_depth_first(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[int]:
    """Return the indices of the nodes that outputs depend on, producers before consumers."""
    # The search is iterative, because chains of nodes are longer than Python's recursion limit.
    producers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    producers_of_node = [[producers[name] for name in _iter_outer_reads(node) if name in producers] for node in nodes]
    order: dict[int, None] = {}
    for root in (producers[name] for name in outputs if name in producers):
        stack = [] if root in order else [(root, iter(producers_of_node[root]))]
        while stack:
            index, unvisited = stack[-1]
            producer = next((producer for producer in unvisited if producer not in order), None)
            if producer is None:
                order[index] = None
                stack.pop()
            else:
                stack.append((producer, iter(producers_of_node[producer])))
    return [*order]


def _iter_outer_reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads from its graph; names that a subgraph defines itself are inner values."""
    yield from filter(None, node.input)
    for inner in iter_subgraphs(node):
        inner_names = {value.name for value in (*inner.input, *inner.initializer)}
        inner_names.update(name for node in inner.node for name in node.output)
        inner_reads = (name for node in inner.node for name in _iter_outer_reads(node))
        yield from (name for name in (*inner_reads, *(value.name for value in inner.output)) if name not in inner_names)
