"""Take weights out of the state of loops.

tf2onnx hands a recurrent layer's weights to its `Loop` as state that never changes. Seen from inside, such a weight is
no constant, so it would be converted to another precision in every step. A loop's body may read constants from outside.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def capture_constants(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> None:
    """Let the body of every loop read constants where they are; edits the graph in place.

    Args:
        graph: The graph whose loops are rewritten, with those inside of them.
        outer: Constants of the graphs around it.
    """
    constants = outer | {each.name for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            _capture(graph, node, constants)
        for inner in subgraphs(node):
            capture_constants(inner, constants)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs a node holds: the body of a loop, the branches of a condition."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _capture(graph: onnx.GraphProto, loop: onnx.NodeProto, constants: frozenset[str]) -> None:
    # A loop has inputs (count, condition, *state), its body inputs (step, condition, *state) and outputs likewise.
    (body,) = subgraphs(loop)
    same = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    kept = {value.name for value in graph.output}
    for index in reversed(range(2, len(loop.input))):
        inside, after = body.input[index].name, body.output[index - 1].name
        returned = after
        while returned in same:
            returned = same[returned]
        if loop.input[index] in constants and returned == inside and loop.output[index - 2] not in kept:
            _rename(body, inside, loop.input[index])
            _rename(graph, loop.output[index - 2], loop.input[index])
            del body.input[index], body.output[index - 1], loop.input[index], loop.output[index - 2]
    used = set(names_used(body))
    for node in [node for node in body.node if node.op_type == "Identity" and node.output[0] not in used]:
        body.node.remove(node)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Let every node of the graph, and of the graphs within, read `new` in place of `old`."""
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
        for inner in subgraphs(node):
            _rename(inner, old, new)


def names_used(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every name that a node of the graph, or of the graphs within, reads, and the names of its outputs."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from node.input
        for inner in subgraphs(node):
            yield from names_used(inner)
