"""In-place graph edits: replace or filter lists, rename inputs, remove dead nodes."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import onnx

from .traversal import all_graphs, all_nodes, names_read


def refill(held: Any, items: Iterable[Any]) -> None:
    """Replace the content of a list of a graph, such as its nodes; the new items may be some of the old ones."""
    copies = [deepcopy(item) for item in items]
    del held[:]
    held.extend(copies)


def keep(held: Any, is_kept: Callable[[Any], bool]) -> None:
    """Remove the items of a list of a graph that fail a test, without copies of the others, which may be large."""
    for index in reversed(range(len(held))):
        if not is_kept(held[index]):
            del held[index]


def rename_reads(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the inputs of every node of a graph and of its subgraphs."""
    for node in all_nodes(graph):
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = names[name]


def drop_unread(graph: onnx.GraphProto) -> bool:
    """Drop nodes and initializers that nothing reads, in bodies too, and return whether there were any."""
    return any([_drop_unread_of_one(inner) for inner in reversed([*all_graphs(graph)])])


def _drop_unread_of_one(graph: onnx.GraphProto) -> bool:
    size = len(graph.node) + len(graph.initializer)
    read = {value.name for value in graph.output}
    remaining = []
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            read.update(names_read(node))
            remaining.append(node)
    refill(graph.node, reversed(remaining))
    keep(graph.initializer, lambda constant: constant.name in read)
    return len(graph.node) + len(graph.initializer) < size
