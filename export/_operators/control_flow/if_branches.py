"""Handler for `If`: copy a tensor that a branch returns twice."""

from typing import Any

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx, find_subgraph
from ..graph_builder import GraphBuilder


def if_(graph: Any, node: Any) -> None:
    """Convert `If` and `StatelessIf` to `If` with tf2onnx, after copying each tensor that a branch returns twice."""
    # tf2onnx renames the outputs of a branch by tensor, so that the second output of a tensor would not exist
    for name in ("then_branch", "else_branch") if node.get_attr("then_branch") is not None else ():
        branch = find_subgraph(node, name)
        for index, output in enumerate(branch.outputs):
            if output in branch.outputs[:index]:
                branch.outputs[index] = GraphBuilder(branch).Identity(output)
    convert_with_tf2onnx(graph, node)
