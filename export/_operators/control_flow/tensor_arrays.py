"""Handlers for `TensorArray` as one stacked tensor: outside loops, or as loop state.

Where a loop makes the array itself, a scan output is smaller (`tensor_array_loops.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ..._private_api.tf2onnx_internals import function_of
from ..graph_builder import Replacement, Writer
from ..indexing.data_movement import sizes

MADE = ("TensorListReserve", "TensorListResize")
WRITE = "TensorListSetItem"


def source_of(graph: Any, name: str, ops: Sequence[str] = ("Cast", "Identity")) -> str:
    """Return what a tensor is handed on from."""
    node = graph.get_node_by_output(name)
    while node is not None and node.type in ops:
        name = node.input[0]
        node = graph.get_node_by_output(name)
    return name


def from_tensor(graph: Any, node: Any) -> None:
    """`TensorListFromTensor`: the tensor."""
    node.type = "Identity"
    graph.replace_inputs(node, node.input[:1])
    graph.copy_dtype(node.input[0], node.output[0])
    graph.copy_shape(node.input[0], node.output[0])


def written(graph: Any, node: Any) -> None:
    """`TensorListSetItem` of what is made in this graph; what a loop is given is left to the loop."""
    source = graph.get_node_by_output(source_of(graph, node.input[0], ["Identity"]))
    if _is_tensor(graph, node):
        _write_item(graph, node, node.input[0])
    elif source.type == MADE[0]:
        write, kind = Writer(graph), graph.get_dtype(node.input[2])
        places = write("Cast", write("Reshape", source.input[1], [1], gives=TensorProto.INT32), to=TensorProto.INT64)
        shape = write("Concat", places, write("Shape", node.input[2]), axis=0)
        zero = helper.make_tensor("value", kind, [1], [0])
        _write_item(graph, node, write("ConstantOfShape", shape, value=zero, gives=kind))


def _write_item(graph: Any, node: Any, items: str) -> None:
    """Write a node that puts an item in its place as what does so with a tensor of all items."""
    _, place, item = node.input
    kind, shape = graph.get_dtype(item), graph.get_shape(item)
    shape = None if shape is None else [-1, *shape]
    _say(graph, items, kind, shape)
    _say(graph, node.output[0], kind, shape)
    grows = node.get_attr_value("resize_if_index_out_of_bounds", 0)  # by `dynamic_size=True`
    write = Replacement(graph, node)
    where = write("Cast", write("Reshape", place, [1, 1], gives=TensorProto.INT32), to=TensorProto.INT64)
    if grows:
        count = write("Sub", write("Add", write("Reshape", where, [1]), 1), write("Shape", items, end=1))
        shape = write("Concat", write("Max", count, 0), write("Shape", item), axis=0)
        zero = helper.make_tensor("value", kind, [1], [0])
        items = write("Concat", items, write("ConstantOfShape", shape, value=zero, gives=kind), axis=0, gives=kind)
    write.last("ScatterND", items, where, write("Unsqueeze", item, [0], gives=kind))


def _say(graph: Any, name: str, kind: int, shape: Any) -> None:
    """Say what a tensor is, and all that it is handed on as."""
    graph.set_dtype(name, kind)
    graph.set_shape(name, shape)
    for consumer in graph.find_output_consumers(name):
        if consumer.type == "Identity":
            _say(graph, consumer.output[0], kind, shape)


def keep_states(graph: Any, loop: Any) -> None:
    """Let a loop's body write into the tensors that it is given for arrays: those are states of the loop."""
    body = function_of(loop, "body")
    inputs = list(body.input_names)
    for number, made in enumerate(loop.inputs):
        if made.type == MADE[0] and source_of(body, body.outputs[number], ["Identity"]) == inputs[number]:
            _hand_on_zeros(graph, loop, body, number)
    for node in [node for node in body.get_nodes() if node.type == WRITE]:
        source = source_of(body, node.input[0], ["Identity", "ScatterND"])
        if source not in inputs or loop.inputs[inputs.index(source)].type in MADE:
            continue
        output, items = loop.output[inputs.index(source)], node.input[0]
        _write_item(body, node, items)
        kind, shape = body.get_dtype(items), body.get_shape(items)
        _say(body, source, kind, shape)
        _say(graph, output, kind, shape)
        # what is only read tf2onnx takes from outside of the loop
        body.ta_reads[:] = [name for name in body.ta_reads if source_of(body, name, ["Identity"]) != source]


def _hand_on_zeros(graph: Any, loop: Any, body: Any, number: int) -> None:
    """Make a tensor of zeros of an array that a loop never writes, if its size is known or nobody reads it."""
    made, is_read = loop.inputs[number], graph.find_output_consumers(loop.output[number])
    element = np.ravel(made.inputs[0].get_tensor_value(as_list=False)) if made.inputs[0].is_const() else np.array([-1])
    if (element < 0).any() and is_read:
        return
    write, kind = Writer(graph), made.get_attr_value("element_dtype")
    places = write("Cast", write("Reshape", made.input[1], [1], gives=TensorProto.INT32), to=TensorProto.INT64)
    sizes = [int(max(size, 0)) for size in element]
    zero = helper.make_tensor("value", kind, [1], [0])
    items = write("ConstantOfShape", write("Concat", places, sizes, axis=0), value=zero, gives=kind)
    graph.replace_input(loop, loop.input[number], items, number)
    _say(body, body.input_names[number], kind, [-1, *sizes])
    _say(graph, loop.output[number], kind, [-1, *sizes])


def gathered(graph: Any, node: Any) -> None:
    """`TensorListGather`."""
    if _is_tensor(graph, node):
        write = Replacement(graph, node)
        write.last("Gather", *write.inputs[:2], axis=0)


def length(graph: Any, node: Any) -> None:
    """`TensorListLength`: that an array was made with, or of a tensor."""
    source = graph.get_node_by_output(source_of(graph, node.input[0], ["Identity"]))
    write = Replacement(graph, node)
    if source.type in MADE:
        write.last("Identity", source.input[1])
    else:
        write.last("Cast", write("Squeeze", write("Shape", write.inputs[0], end=1)), to=TensorProto.INT32)


def concatenated(graph: Any, node: Any) -> None:
    """`TensorListConcatV2`: the first two axes made one, and the length of each element, which is the same here."""
    if not _is_tensor(graph, node):
        return
    items, (joined, lengths), (kind, _) = node.input[0], node.output, node.output_dtypes
    shape = graph.get_shape(joined)
    graph.remove_node(node.name)
    write = Writer(graph)
    rest = write("Concat", [-1], sizes(write, items, 2), axis=0)
    write.named(joined, "Reshape", items, rest, shape=shape, gives=kind)
    count, each = write("Shape", items, end=1), write("Shape", items, start=1, end=2)
    write.named(lengths, "Expand", each, count, shape=[-1], gives=TensorProto.INT64)


def _is_tensor(graph: Any, node: Any) -> bool:
    """Whether the array that a node reads is a tensor by now: made here, and no variant that a loop is given."""
    source = source_of(graph, node.input[0], ["Identity"])
    return graph.get_node_by_output(source).type not in MADE and bool(graph.get_dtype(source))
