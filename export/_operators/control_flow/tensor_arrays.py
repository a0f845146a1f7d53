"""Handlers for `TensorArray` as one tensor (items, ...): outside of loops, or as a loop state.

tf2onnx converts only arrays that a loop writes or reads. For an array that is created for one loop, a scan output is
smaller than a state (`tensor_array_loops.py`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import find_subgraph
from ..graph_builder import GraphBuilder, NodeReplacement, RejectionReason, Shape, constant_value, fill_attribute

CREATING_OPS = ("TensorListReserve", "TensorListResize")
SET_ITEM = "TensorListSetItem"
_UNKNOWN_ARRAY = "it reads a `TensorArray` that was not written, or one of the loop around it"


def find_source(graph: Any, name: str, ops: Sequence[str] = ("Cast", "Identity")) -> str:
    """Return the tensor that a tensor is a copy of, through nodes of the types `ops`."""
    node = graph.get_node_by_output(name)
    while node is not None and node.type in ops:
        name = node.input[0]
        node = graph.get_node_by_output(name)
    return name


def cast_indices(op: GraphBuilder, tensor: str, *shape: int) -> str:
    """Cast int32 indices to int64 and reshape them, by default to one axis."""
    return op.Cast(op.Reshape(tensor, [*(shape or (-1,))], output_dtype=TensorProto.INT32), to=TensorProto.INT64)


def tensor_list_from_tensor(graph: Any, node: Any) -> None:
    """Convert `TensorListFromTensor` to `Identity`: the array is the tensor."""
    node.type = "Identity"
    graph.replace_inputs(node, node.input[:1])
    graph.copy_dtype(node.input[0], node.output[0])
    graph.copy_shape(node.input[0], node.output[0])


def tensor_list_set_item(graph: Any, node: Any) -> None:
    """Convert `TensorListSetItem` of an array of this graph to `ScatterND`; loop states by `convert_state_arrays`."""
    source = graph.get_node_by_output(find_source(graph, node.input[0], ["Identity"]))
    if _is_tensor(graph, node):
        _write_item(graph, node, node.input[0])
    elif source.type == "TensorListReserve":
        op = GraphBuilder(graph)
        dtype = graph.get_dtype(node.input[2])
        shape = op.Concat(cast_indices(op, source.input[1], 1), op.Shape(node.input[2]), axis=0)
        _write_item(graph, node, op.ConstantOfShape(shape, value=fill_attribute(0, dtype), output_dtype=dtype))


def _write_item(graph: Any, node: Any, items: str) -> None:
    """Replace a node that sets an item by `ScatterND` of the item (...) into all items (items, ...)."""
    _, index, item = node.input
    dtype = graph.get_dtype(item)
    item_shape = graph.get_shape(item)
    shape = None if item_shape is None else [-1, *item_shape]
    _set_type(graph, items, dtype, shape)
    _set_type(graph, node.output[0], dtype, shape)
    grows = node.get_attr_value("resize_if_index_out_of_bounds", 0)
    op = NodeReplacement(graph, node)
    index = cast_indices(op, index, 1, 1)
    # With `dynamic_size=True`, TensorFlow extends the array by zeros
    if grows:
        count = op.Sub(op.Add(op.Reshape(index, [1]), 1), op.Shape(items, end=1))
        padding_shape = op.Concat(op.Max(count, 0), op.Shape(item), axis=0)
        padding = op.ConstantOfShape(padding_shape, value=fill_attribute(0, dtype), output_dtype=dtype)
        items = op.Concat(items, padding, axis=0, output_dtype=dtype)
    op.finish("ScatterND", items, index, op.Unsqueeze(item, [0], output_dtype=dtype))


def _set_type(graph: Any, name: str, dtype: int, shape: Shape) -> None:
    """Set the element type and the shape of a tensor and of its copies."""
    graph.set_dtype(name, dtype)
    graph.set_shape(name, shape)
    for consumer in graph.find_output_consumers(name):
        if consumer.type == "Identity":
            _set_type(graph, consumer.output[0], dtype, shape)


def convert_state_arrays(graph: Any, loop: Any) -> None:
    """Replace the arrays that a loop gets from outside by tensors, which are states of the loop."""
    body = find_subgraph(loop, "body")
    inputs = list(body.input_names)
    for index, source in enumerate(loop.inputs):
        is_unchanged = find_source(body, body.outputs[index], ["Identity"]) == inputs[index]
        if source.type == "TensorListReserve" and is_unchanged:
            _pass_zeros(graph, loop, body, index)
    for node in [node for node in body.get_nodes() if node.type == SET_ITEM]:
        name = find_source(body, node.input[0], ["Identity", "ScatterND"])
        if name not in inputs or loop.inputs[inputs.index(name)].type in CREATING_OPS:
            continue
        output = loop.output[inputs.index(name)]
        items = node.input[0]
        _write_item(body, node, items)
        dtype = body.get_dtype(items)
        shape = body.get_shape(items)
        _set_type(body, name, dtype, shape)
        _set_type(graph, output, dtype, shape)
        # tf2onnx would read these arrays from the outer graph, without the writes of the loop
        body.ta_reads[:] = [array for array in body.ta_reads if find_source(body, array, ["Identity"]) != name]


def _pass_zeros(graph: Any, loop: Any, body: Any, index: int) -> None:
    """Replace an array that a loop does not write by zeros, if the item shape is known or the array has no consumer."""
    source = loop.inputs[index]
    constant = constant_value(graph, source.input[0])
    item_shape = np.array([-1]) if constant is None else constant.ravel()
    if (item_shape < 0).any() and graph.find_output_consumers(loop.output[index]):
        return
    op = GraphBuilder(graph)
    dtype = source.get_attr_value("element_dtype")
    dims = [int(max(dim, 0)) for dim in item_shape]
    shape = op.Concat(cast_indices(op, source.input[1], 1), dims, axis=0)
    items = op.ConstantOfShape(shape, value=fill_attribute(0, dtype), output_dtype=dtype)
    graph.replace_input(loop, loop.input[index], items, index)
    _set_type(body, body.input_names[index], dtype, [-1, *dims])
    _set_type(graph, loop.output[index], dtype, [-1, *dims])


def tensor_list_gather(graph: Any, node: Any) -> RejectionReason:
    """Convert `TensorListGather` of (items, indices) to `Gather`; tf2onnx has no mapping."""
    if not _is_tensor(graph, node):
        return _UNKNOWN_ARRAY
    op = NodeReplacement(graph, node)
    return op.finish("Gather", *op.inputs[:2], axis=0)


def tensor_list_length(graph: Any, node: Any) -> None:
    """Convert `TensorListLength` to the first dim of the tensor, or the length that an array was created with."""
    source = graph.get_node_by_output(find_source(graph, node.input[0], ["Identity"]))
    op = NodeReplacement(graph, node)
    if source.type in CREATING_OPS:
        op.finish("Identity", source.input[1])
    else:
        op.finish("Cast", op.Squeeze(op.Shape(op.inputs[0], end=1)), to=TensorProto.INT32)


def tensor_list_concat(graph: Any, node: Any) -> RejectionReason:
    """Convert `TensorListConcatV2` of items (N, L, ...) to `Reshape`, (N L, ...), and the lengths (N,), all L."""
    if not _is_tensor(graph, node):
        return _UNKNOWN_ARRAY
    op = NodeReplacement(graph, node)
    items = op.inputs[0]
    op.finish("Reshape", items, op.concat_shape(-1, op.dims(items, 2)))
    count = op.Shape(items, end=1)
    length = op.Shape(items, start=1, end=2)
    return op.finish("Expand", length, count, output=1)


def _is_tensor(graph: Any, node: Any) -> bool:
    source = find_source(graph, node.input[0], ["Identity"])
    return graph.get_node_by_output(source).type not in CREATING_OPS and bool(graph.get_dtype(source))
