"""In-place graph edits: replace or filter lists, rename inputs, remove dead nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import onnx

from .traversal import all_graphs, all_nodes, names_read


def refill(held: Any, items: Iterable[Any]) -> None:
    """Let a list of a graph, such as its nodes, hold these instead; they may be some of those that it held."""
    copies = [deepcopy(each) for each in items]
    del held[:]
    held.extend(copies)


def keep(held: Any, is_kept: Callable[[Any], bool]) -> None:
    """Drop the others from a list of a graph; nothing is copied, which may be large."""
    for index in reversed(range(len(held))):
        if not is_kept(held[index]):
            del held[index]


def rename_reads(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let every node of a graph, and of the graphs within it, read other names."""
    for node in all_nodes(graph):
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = names[name]


def drop_unread(graph: onnx.GraphProto) -> None:
    """Drop what nothing reads, in bodies too."""
    for each in reversed([*all_graphs(graph)]):
        _drop_unread_of_one(each)


def _drop_unread_of_one(graph: onnx.GraphProto) -> None:
    read = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            read.update(names_read(node))
            kept.append(node)
    refill(graph.node, reversed(kept))
    keep(graph.initializer, lambda constant: constant.name in read)
