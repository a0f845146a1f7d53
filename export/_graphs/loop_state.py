"""Take out of the state of loops what they only hand on.

TensorFlow hands a loop all that its body reads as state, and tf2onnx leaves it there: the weights of layers, a memory
that is attended to. onnxruntime copies state in every step, and nothing that is state is a constant to what optimizes
or converts a body. The body of a `Loop` may read what is outside of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from .walk import drop_unread, graphs_in, names_read


def capture_unchanged(graph: onnx.GraphProto) -> None:
    """Let the body of every loop read what never changes where it is; edits the graph in place."""
    for node in list(graph.node):
        for inner in graphs_in(node):
            capture_unchanged(inner)  # what an inner loop hands on, the outer one may only hand on too
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            _capture(graph, node)


def _capture(graph: onnx.GraphProto, loop: onnx.NodeProto) -> None:
    # A loop has inputs (count, condition, *state), its body inputs (step, condition, *state) and outputs likewise.
    (body,) = graphs_in(loop)
    same = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    kept = {value.name for value in graph.output}
    for index in reversed(range(2, len(loop.input))):
        inside, after, outside = body.input[index].name, body.output[index - 1].name, loop.input[index]
        while after in same:
            after = same[after]
        if after != inside:
            continue
        if any(value.name == inside for place, value in enumerate(body.output, 1) if place != index):
            # another state takes it over in the next step: what it takes must be made in the body
            body.node.append(helper.make_node("Identity", [outside], [inside], name=f"{inside}/outside"))
        result = loop.output[index - 2]
        _rename(body, inside, outside)
        _rename(graph, result, outside)
        del body.input[index], body.output[index - 1], loop.input[index], loop.output[index - 2]
        if result in kept:
            graph.node.append(helper.make_node("Identity", [outside], [result], name=f"{result}/unchanged"))
    drop_unread(body)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Let every node of the graph, and of the graphs within, read `new` in place of `old`."""
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
        for inner in graphs_in(node):
            _rename(inner, old, new)


def names_used(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every name that a node of the graph, or of the graphs within, reads, and the names of its outputs."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        yield from names_read(node)
        for inner in graphs_in(node):
            yield from names_used(inner)
