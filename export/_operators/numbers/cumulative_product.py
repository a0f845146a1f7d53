"""Handler for `Cumprod`, by `Scan`."""

from typing import Any

from ..._private_api.tf2onnx_internals import make_name
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason, Shape, constant_value


def cumprod(graph: Any, node: Any) -> RejectionReason:
    """Convert `Cumprod` to a `Scan` along the axis; tf2onnx rejects the last axis."""
    rank = graph.get_rank(node.input[0])
    constant_axis = constant_value(graph, node.input[1])
    if rank is None or constant_axis is None:
        return "its axis is not constant, or the rank of its input is unknown"
    axis = int(constant_axis) % rank
    is_reverse = int(node.get_attr_value("reverse", 0))
    is_exclusive = bool(node.get_attr_value("exclusive", 0))
    op = NodeReplacement(graph, node)
    x = op.inputs[0]
    other_axes = [other_axis for other_axis in range(rank) if other_axis != axis]
    shape = None if op.shape is None else [op.shape[other_axis] for other_axis in other_axes]
    ones = op.Cast(op.Expand(1, op.Gather(op.Shape(x), other_axes, axis=0)), to=op.dtype)
    may_be_empty = op.shape is None or op.shape[axis] <= 0
    # A `Scan` over an empty axis ends the process in onnxruntime 1.32: if the axis may be empty, an element is added
    if may_be_empty:
        parts = [op.Unsqueeze(ones, [axis]), x]
        x = op.Concat(*(parts if is_reverse else parts[::-1]), axis=axis)
    scan = graph.make_node(
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
        op.finish("Slice", scan.output[1], *([1], [2**31]) if is_reverse else ([0], [-1]), [axis])
    else:
        op.finish("Identity", scan.output[1])
    return None


def _body(op: NodeReplacement, shape: Shape, is_exclusive: bool) -> Any:
    """Return the graph of an iteration: (product, elements) to (next product, output), all of this shape."""
    body = op.graph.create_new_graph_with_same_config()
    body.parent_graph = op.graph
    product = make_name("product")
    elements = make_name("number")
    body.add_graph_input(product, op.dtype, shape)
    body.add_graph_input(elements, op.dtype, shape)
    body_op = GraphBuilder(body)
    next_product = body_op.Mul(product, elements)
    body.add_graph_output(next_product, op.dtype, shape)
    body.add_graph_output(body_op.Identity(product if is_exclusive else next_product), op.dtype, shape)
    return body
