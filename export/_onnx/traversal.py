"""Traverse a graph and its subgraphs (loop bodies and branches)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def iter_subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of a node: bodies and branches."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def iter_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and its subgraphs, outer graphs first."""
    yield graph
    for node in graph.node:
        for subgraph in iter_subgraphs(node):
            yield from iter_graphs(subgraph)


def iter_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph or a function, each followed by the nodes of its subgraphs."""
    for node in graph.node:
        yield node
        for subgraph in iter_subgraphs(node):
            yield from iter_nodes(subgraph)


def list_loops(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes `Loop` of a graph, excluding its subgraphs."""
    return [node for node in graph.node if node.op_type == "Loop" and node.domain in ("", "ai.onnx")]


def iter_input_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of the inputs of a node, and the names that its subgraphs read and return."""
    yield from filter(None, node.input)
    for subgraph in iter_subgraphs(node):
        yield from iter_used_names(subgraph)


def find_names_read_by_value(graph: onnx.GraphProto) -> set[str]:
    """Return the names of tensors whose elements, not only their shapes, affect the outputs of a graph."""
    names = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if node.op_type != "Shape" and not names.isdisjoint(node.output):
            names.update(node.input)
            for subgraph in iter_subgraphs(node):
                names |= find_names_read_by_value(subgraph)
    return names


def iter_used_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that the nodes of a graph and its subgraphs read, and that these graphs return."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from iter_input_names(node)
