"""Sort nodes and initializers in an order that depends only on the graph."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from .graph_edits import refill
from .traced_model import Weights
from .traversal import graphs_in, names_read


def put_in_order(graph: onnx.GraphProto) -> None:
    """Put each node of a graph behind what it reads, in place, depth first from its outputs; what nothing reads goes.

    Constants follow in the order in which they are read. So the order follows from the graph itself: not from names,
    nor from the order in which a converter, which keeps nodes in sets, came by them.
    """
    for node in graph.node:
        for inner in graphs_in(node):
            put_in_order(inner)
    nodes = list(graph.node)
    maker = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    order: dict[int, None] = {}
    waiting = [maker[value.name] for value in reversed(graph.output) if value.name in maker]
    while waiting:
        reads = dict.fromkeys(maker[name] for name in _from_outside(nodes[waiting[-1]]) if name in maker)
        if before := [number for number in reads if number not in order]:
            waiting += reversed(before)
        elif (number := waiting.pop()) not in order:
            order[number] = None
    refill(graph.node, (nodes[number] for number in order))
    constants = {each.name: each for each in graph.initializer}
    refill(graph.initializer, (constants[name] for name in reading_order(graph) if name in constants))


def _from_outside(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what a node reads of the graph around it; a value in a body may have the name of another outside."""
    yield from filter(None, node.input)
    for inner in graphs_in(node):
        own = {each.name for each in (*inner.input, *inner.initializer)}
        own.update(name for each in inner.node for name in each.output)
        read = (name for each in inner.node for name in _from_outside(each))
        yield from (name for name in (*read, *(value.name for value in inner.output)) if name not in own)


def reading_order(graph: onnx.GraphProto) -> dict[str, None]:
    """Return the names that the nodes of a graph and of those within it read, and its outputs, as they first come."""
    names = dict.fromkeys(name for node in graph.node for name in names_read(node))
    return names | dict.fromkeys(value.name for value in graph.output)


def in_order(weights: Weights, graph: onnx.GraphProto) -> Weights:
    """Return weights in the order in which a graph reads them, those that it does not last."""
    read = (name for name in reading_order(graph) if name in weights)
    return {name: weights[name] for name in dict.fromkeys((*read, *sorted(weights)))}
