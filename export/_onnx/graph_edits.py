"""In-place graph edits: replace or filter lists, rename inputs, remove dead nodes."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import onnx

from .traversal import iter_graphs, iter_input_names, iter_nodes


def replace_items(field: Any, items: Iterable[Any]) -> None:
    """Replace the content of a repeated field, such as the nodes of a graph."""
    # Copies, since `items` may contain items of the field, which are invalid after `del`
    copies = [deepcopy(item) for item in items]
    del field[:]
    field.extend(copies)


def filter_in_place(field: Any, predicate: Callable[[Any], bool]) -> None:
    """Remove the items of a repeated field for which a predicate is False."""
    # In place: copies of the remaining items, such as weights, may be large
    for index in reversed(range(len(field))):
        if not predicate(field[index]):
            del field[index]


def rename_inputs(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the inputs of every node of a graph and of its subgraphs."""
    for node in iter_nodes(graph):
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = names[name]


def remove_dead_nodes(graph: onnx.GraphProto) -> bool:
    """Remove dead nodes and initializers of a graph and its subgraphs, and return True if there were any."""
    # A list, since `any` of a generator would stop at the first graph with dead nodes; inner graphs first, since dead
    # nodes in them may be the last readers of outer values
    return any([_remove_dead_local_nodes(subgraph) for subgraph in reversed([*iter_graphs(graph)])])


def _remove_dead_local_nodes(graph: onnx.GraphProto) -> bool:
    size = len(graph.node) + len(graph.initializer)
    live_names = {value.name for value in graph.output}
    live_nodes = []
    for node in reversed(graph.node):
        if not live_names.isdisjoint(node.output):
            live_names.update(iter_input_names(node))
            live_nodes.append(node)
    replace_items(graph.node, reversed(live_nodes))
    filter_in_place(graph.initializer, lambda constant: constant.name in live_names)
    return len(graph.node) + len(graph.initializer) < size
