"""Remove loop state that the body only passes through; the body reads it from the outer graph instead."""

# TensorFlow makes every tensor that a body reads part of the loop state, and tf2onnx keeps it there: weights of layers,
# the memory of a decoder. onnxruntime copies the state in each iteration, and its optimizers do not treat state as
# constant. The body of an ONNX `Loop` may read tensors of the outer graph, so pass-through state is not necessary.

import onnx
from onnx import helper

from .._onnx.graph_edits import remove_dead_nodes, rename_inputs
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_graphs, iter_subgraphs, list_loops


def remove_passthrough_state(traced: TracedModel) -> bool:
    """Remove the state that no iteration of a loop changes."""
    # Inner loops first: state of an outer loop may be pass-through only after that of an inner loop is removed.
    graphs = reversed([*iter_graphs(traced.model.graph)])
    return any([_remove_from_loop(graph, loop) for graph in graphs for loop in list_loops(graph)])


def _remove_from_loop(graph: onnx.GraphProto, loop: onnx.NodeProto) -> bool:
    # A loop has inputs (trip count, condition, *state); its body has inputs (iteration, condition, *state) and outputs
    # (condition, *state, *scan outputs).
    (body,) = iter_subgraphs(loop)
    num_inputs = len(loop.input)
    sources = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    graph_outputs = {value.name for value in graph.output}
    for index in reversed(range(2, num_inputs)):
        body_input, body_output, initial_value = body.input[index].name, body.output[index - 1].name, loop.input[index]
        while body_output in sources:
            body_output = sources[body_output]
        if body_output != body_input:
            continue
        if any(value.name == body_input for output_index, value in enumerate(body.output, 1) if output_index != index):
            # Another state takes this value in the next iteration. A body computes its own outputs: copy the value.
            body.node.append(helper.make_node("Identity", [initial_value], [body_input], name=f"{body_input}/outside"))
        result = loop.output[index - 2]
        rename_inputs(body, {body_input: initial_value})
        rename_inputs(graph, {result: initial_value})
        del body.input[index], body.output[index - 1], loop.input[index], loop.output[index - 2]
        if result in graph_outputs:
            graph.node.append(helper.make_node("Identity", [initial_value], [result], name=f"{result}/unchanged"))
    remove_dead_nodes(body)
    return len(loop.input) < num_inputs
