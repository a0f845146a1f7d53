"""Remove loop state that the body only passes through; the body reads it from outside.

TensorFlow hands a loop all that its body reads as state, and tf2onnx leaves it there: the weights of layers, a memory
that is attended to. onnxruntime copies state in every step, and nothing that is state is a constant to what optimizes
or converts a body. The body of a `Loop` may read what is outside of it.
"""

from __future__ import annotations

import onnx
from onnx import helper

from .._onnx.graph_edits import drop_unread, rename_reads
from .._onnx.traversal import all_graphs, graphs_in, loops_in


def capture_unchanged(graph: onnx.GraphProto) -> None:
    """Let the body of every loop read what never changes where it is; edits the graph in place."""
    for each in reversed([*all_graphs(graph)]):  # what an inner loop hands on, the outer one may only hand on too
        for node in loops_in(each):
            _capture(each, node)


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
        rename_reads(body, {inside: outside})
        rename_reads(graph, {result: outside})
        del body.input[index], body.output[index - 1], loop.input[index], loop.output[index - 2]
        if result in kept:
            graph.node.append(helper.make_node("Identity", [outside], [result], name=f"{result}/unchanged"))
    drop_unread(body)
