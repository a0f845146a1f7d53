"""Traverse a graph and its subgraphs (loop bodies and branches)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def graphs_in(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among the attributes of a node: bodies and branches."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and its subgraphs, outer graphs first."""
    yield graph
    for node in graph.node:
        for inner in graphs_in(node):
            yield from all_graphs(inner)


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph or a function, each followed by the nodes of its subgraphs."""
    for node in graph.node:
        yield node
        for inner in graphs_in(node):
            yield from all_nodes(inner)


def loops_in(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the loops of a graph, without those within its bodies and branches."""
    return [node for node in graph.node if node.op_type == "Loop" and node.domain in ("", "ai.onnx")]


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read, and the outputs of the subgraphs."""
    yield from filter(None, node.input)
    for inner in graphs_in(node):
        yield from names_used(inner)


def names_read_by_value(graph: onnx.GraphProto) -> set[str]:
    """Return the names of tensors of which the outputs of a graph depend on more than the shape."""
    read = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if node.op_type != "Shape" and not read.isdisjoint(node.output):
            read.update(node.input)
            for inner in graphs_in(node):
                read |= names_read_by_value(inner)
    return read


def names_used(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that the nodes of a graph and of its subgraphs read, and the outputs of these graphs."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from names_read(node)
