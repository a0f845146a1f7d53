"""Handler for `Cumprod`, by `Scan`."""

from __future__ import annotations

from typing import Any

from ..._private_api.tf2onnx_internals import make_name
from ..graph_builder import Replacement, constant_of


def product(graph: Any, node: Any) -> None:
    """`Cumprod`: a step of `Scan` for each number along the axis. A rank or axis that is not known is refused.

    A `Scan` of no steps ends the process in onnxruntime 1.32: where the axis may be empty, one step more is made.
    """
    rank, axis = graph.get_rank(node.input[0]), constant_of(graph, node.input[1])
    if rank is None or axis is None:
        return
    number, backward = int(axis) % rank, int(node.get_attr_value("reverse", 0))
    exclusive = node.get_attr_value("exclusive", 0)
    write = Replacement(graph, node)
    x, _ = write.inputs
    others = [each for each in range(rank) if each != number]
    shape = None if write.shape is None else [write.shape[each] for each in others]
    body = graph.create_new_graph_with_same_config()
    body.parent_graph = graph
    before, each = make_name("product"), make_name("number")
    body.add_graph_input(before, write.dtype, shape)
    body.add_graph_input(each, write.dtype, shape)
    after = body.make_node("Mul", [before, each], shapes=[shape], dtypes=[write.dtype]).output[0]
    body.add_graph_output(after, write.dtype, shape)
    kept = body.make_node("Identity", [before if exclusive else after], shapes=[shape], dtypes=[write.dtype])
    body.add_graph_output(kept.output[0], write.dtype, shape)
    ones = write("Cast", write("Expand", 1, write("Gather", write("Shape", x), others, axis=0)), to=write.dtype)
    may_be_empty = write.shape is None or write.shape[number] <= 0
    if may_be_empty:
        parts = [write("Unsqueeze", ones, [number]), x]
        x = write("Concat", *(parts if backward else parts[::-1]), axis=number)
    found = graph.make_node(
        "Scan",
        [ones, x],
        attr={
            "num_scan_inputs": 1,
            "scan_input_axes": [number],
            "scan_output_axes": [number],
            "scan_input_directions": [backward],
            "scan_output_directions": [backward],
        },
        output_count=2,
        branches={"body": body},
        shapes=[shape, None if may_be_empty else write.shape],
        dtypes=[write.dtype, write.dtype],
    )
    if may_be_empty:
        write.last("Slice", found.output[1], *([1], [2**31]) if backward else ([0], [-1]), [number])
    else:
        write.last("Identity", found.output[1])
