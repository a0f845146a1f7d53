"""Handler for `Cumprod`, by `Scan`."""

from typing import Any

from ..._private_api.tf2onnx_internals import make_name
from ..graph_builder import GraphBuilder, NodeReplacement, Refusal, Shape, constant_value


def cumprod(graph: Any, node: Any) -> Refusal:
    """Convert `Cumprod` to a step of `Scan` for each number along the axis.

    A `Scan` of no steps ends the process in onnxruntime 1.32: where the axis may be empty, a first step is added.
    """
    rank = graph.get_rank(node.input[0])
    constant_axis = constant_value(graph, node.input[1])
    if rank is None or constant_axis is None:
        return "its axis or the rank of its input is not constant"
    axis = int(constant_axis) % rank
    is_reverse = int(node.get_attr_value("reverse", 0))
    is_exclusive = bool(node.get_attr_value("exclusive", 0))
    op = NodeReplacement(graph, node)
    x = op.inputs[0]
    others = [k for k in range(rank) if k != axis]
    shape = None if op.shape is None else [op.shape[k] for k in others]
    ones = op.Cast(op.Expand(1, op.Gather(op.Shape(x), others, axis=0)), to=op.dtype)
    may_be_empty = op.shape is None or op.shape[axis] <= 0
    if may_be_empty:
        parts = [op.Unsqueeze(ones, [axis]), x]
        x = op.Concat(*(parts if is_reverse else parts[::-1]), axis=axis)
    node_of_scan = graph.make_node(
        "Scan",
        [ones, x],
        attr={
            "num_scan_inputs": 1,
            "scan_input_axes": [axis],
            "scan_output_axes": [axis],
            "scan_input_directions": [is_reverse],
            "scan_output_directions": [is_reverse],
        },
        output_count=2,
        branches={"body": _body(op, shape, is_exclusive)},
        shapes=[shape, None if may_be_empty else op.shape],
        dtypes=[op.dtype, op.dtype],
    )
    if may_be_empty:
        op.finish("Slice", node_of_scan.output[1], *([1], [2**31]) if is_reverse else ([0], [-1]), [axis])
    else:
        op.finish("Identity", node_of_scan.output[1])
    return None


def _body(op: NodeReplacement, shape: Shape, is_exclusive: bool) -> Any:
    """Return the graph of a step: (product before, numbers) to (product after, element of the output)."""
    body = op.graph.create_new_graph_with_same_config()
    body.parent_graph = op.graph
    before = make_name("product")
    numbers = make_name("number")
    body.add_graph_input(before, op.dtype, shape)
    body.add_graph_input(numbers, op.dtype, shape)
    inner = GraphBuilder(body)
    after = inner.Mul(before, numbers)
    body.add_graph_output(after, op.dtype, shape)
    body.add_graph_output(inner.Identity(before if is_exclusive else after), op.dtype, shape)
    return body
