"""Handlers for loops that write a `TensorArray`.

tf2onnx 1.17 converts each `TensorArray` that a loop writes to a scan output of `Loop`: one item per iteration, in the
order of the iterations. TensorFlow's array has the length that it was created with; an iteration may write any indices,
and several of them; unwritten items are zeros. So if the index is not the iteration counter, the index becomes a scan
output too, and the items are moved to their indices. If the loop may end early, zeros are appended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_while, find_subgraph, make_name
from ..graph_builder import GraphBuilder, RejectionReason, constant_value, fill_attribute
from .tensor_arrays import CREATING_OPS, SET_ITEM, cast_indices, convert_state_arrays, find_source


@dataclass(frozen=True)
class _WrittenArray:
    """An array that a loop writes.

    Attributes:
        size: The tensor with the length that the array was created with, int32, a scalar.
        index: The tensor of the body with the indices of the items, (writes,); None for the iteration counter.
        writes: The number of items that an iteration writes.
        is_full: Whether the loop writes all items in every case.
    """

    size: str
    index: str | None
    writes: int
    is_full: bool


def while_(graph: Any, node: Any) -> RejectionReason:
    """Convert `While` and `StatelessWhile` of `tf.while_loop` to `Loop` with tf2onnx, except for written arrays."""
    # The first two states of such a loop are the iteration counter and its limit. Loops of other functions have no such
    # states, but tf2onnx would take their first two states for them.
    if not _is_counted_loop(find_subgraph(node, "body")):
        return "its first states are not an iteration counter and its limit, as those of `tf.while_loop` are"
    for index in (0, 1):
        _count_in_int64(graph, node, index)
    convert_state_arrays(graph, node)
    loop = _Loop(graph, node)
    body = loop.body
    has_ragged_writes = bool(body.ragged_variant_list_writes)
    if not has_ragged_writes and (reason := loop.find_obstacle()):
        return reason
    arrays = [] if has_ragged_writes else loop.merge_writes()
    convert_while(graph, node)
    # onnxruntime needs the rank of counter and condition
    for source in body.inputs[:2]:
        body.set_shape(source.output[0], [])
    onnx_loop = graph.get_node_by_name(f"{node.name}_loop")
    # tf2onnx appends the scan outputs to the states, those of the last inputs first
    outputs = onnx_loop.output[len(onnx_loop.output) - len(arrays) :]
    for array, output in zip(reversed(arrays), outputs, strict=True):
        if array.index is not None:
            onnx_loop, indices = _add_scan_output(graph, onnx_loop, body, array.index)
            _move_items(graph, output, indices, array)
        elif not array.is_full:
            _append_zeros(graph, output, array)
    return None


def _count_in_int64(graph: Any, loop: Any, index: int) -> None:
    """Cast counter or limit of a loop to int64, the dtype of ONNX's iteration counter: conditions compare both."""
    source = loop.inputs[index]
    if graph.get_dtype(loop.input[index]) == TensorProto.INT64 or (index == 1 and source.is_const()):
        return
    op = GraphBuilder(graph)
    if source.is_const():
        name = op.constant(source.get_tensor_value(as_list=False).astype(np.int64))
    else:
        name = op.Cast(loop.input[index], to=TensorProto.INT64)
    graph.replace_input(loop, loop.input[index], name, index)


def _is_counted_loop(body: Any) -> bool:
    """Return True if a body adds one to its first input and returns its second input unchanged."""
    if len(body.input_names) < 2:
        return False
    counter, limit = body.input_names[:2]
    return find_source(body, body.outputs[1]) == limit and _adds_one(body, body.outputs[0], counter)


def _adds_one(body: Any, name: str, counter: str) -> bool:
    """Return True if a tensor of a body is its input `counter` plus one."""
    producer = body.get_node_by_output(find_source(body, name))
    if producer is None or producer.type not in ("Add", "AddV2"):
        return False
    operands = [(producer.input[0], producer.inputs[1]), (producer.input[1], producer.inputs[0])]
    return any(find_source(body, summand) == counter and _is_constant(addend, 1) for summand, addend in operands)


class _Loop:
    """A loop of TensorFlow before its conversion; tf2onnx has converted the nodes of its body."""

    def __init__(self, graph: Any, node: Any) -> None:
        self._graph = graph
        self._node = node
        self.body = find_subgraph(node, "body")
        self._condition = find_subgraph(node, "cond")
        self._inputs: list[str] = list(self.body.input_names)
        self._writes_by_input = {
            index: self._find_writes(index) for index, source in enumerate(node.inputs) if source.type in CREATING_OPS
        }

    def find_obstacle(self) -> str | None:
        """Return the reason if the loop writes an array in an unsupported way, else None."""
        writes = [node for node in self.body.get_nodes() if node.type == SET_ITEM]
        if len(writes) != sum(map(len, self._writes_by_input.values())):
            return "it writes a `TensorArray` of an outer loop"
        reads = {find_source(self.body, name, ("Identity",)) for name in self.body.ta_reads}
        for index, array_writes in self._writes_by_input.items():
            if not array_writes:
                return "it writes a `TensorArray` only under a condition, in an inner loop, or never"
            if reads & {self._inputs[index], *(node.output[0] for node in array_writes)}:
                return "it reads a `TensorArray` that it writes"
        return None

    def merge_writes(self) -> list[_WrittenArray]:
        """Merge the writes of each array in an iteration to one, and return the arrays in the order of the inputs."""
        arrays = []
        for index, writes in self._writes_by_input.items():
            size = self._node.inputs[index].input[1]
            if len(writes) == 1 and self._is_counter(self.body, writes[0].input[1]):
                # An array that is created without items grows with each write, up to the last iteration
                starts_empty = _is_constant(self._graph.get_node_by_output(find_source(self._graph, size)), 0)
                arrays.append(_WrittenArray(size, None, 1, starts_empty or self._fills_array(size)))
            else:
                arrays.append(_WrittenArray(size, _merge_into_last(self.body, writes), len(writes), is_full=False))
        return arrays

    def _find_writes(self, index: int) -> list[Any]:
        """Return the nodes that write an array in an iteration, in order; empty if the array comes from other nodes."""
        name = find_source(self.body, self.body.outputs[index], ("Identity",))
        writes: list[Any] = []
        while name != self._inputs[index]:
            node = self.body.get_node_by_output(name)
            if node is None or node.type != SET_ITEM:
                return []
            writes.append(node)
            name = find_source(self.body, node.input[0], ("Identity",))
        return writes[::-1]

    def _is_counter(self, graph: Any, name: str) -> bool:
        """Return True if a tensor of the body, or of the condition, counts iterations from 0 on."""
        index = _find_input_index(graph, name)
        if index is None or index == 1 or not _is_constant(self._node.inputs[index], 0):
            return False
        return _adds_one(self.body, self.body.outputs[index], self._inputs[index])

    def _fills_array(self, size: str) -> bool:
        """Return True if the loop ends exactly after as many iterations as an array has items."""
        # So if its condition consists of comparisons of a counter with the length, joined by And
        pending = [self._condition.outputs[0]]
        while pending:
            producer = self._condition.get_node_by_output(find_source(self._condition, pending.pop()))
            if producer is not None and producer.type in ("And", "LogicalAnd"):
                pending += producer.input
            elif producer is None or producer.type != "Less" or not self._compares_with_length(producer, size):
                return False
        return True

    def _compares_with_length(self, comparison: Any, size: str) -> bool:
        """Return True if a `Less` node compares the iteration counter with the length of an array."""
        if not self._is_counter(self._condition, comparison.input[0]):
            return False
        index = _find_input_index(self._condition, comparison.input[1])
        if index is None:
            end = self._condition.get_node_by_output(find_source(self._condition, comparison.input[1]))
        elif index == 1 or find_source(self.body, self.body.outputs[index]) == self._inputs[index]:
            if find_source(self._graph, self._node.input[index]) == find_source(self._graph, size):
                return True
            end = self._node.inputs[index]
        else:
            return False
        length = constant_value(self._graph, find_source(self._graph, size))
        return length is not None and _is_constant(end, int(length))


def _merge_into_last(body: Any, writes: Sequence[Any]) -> str:
    """Replace several writes by the last, with all items stacked, and return their indices, (writes,)."""
    op = GraphBuilder(body)
    first, last = writes[0], writes[-1]
    indices = [op.Reshape(node.input[1], [-1]) for node in writes]
    all_indices = op.Cast(op.Concat(*indices, axis=0, output_dtype=TensorProto.INT32), to=TensorProto.INT64)
    if len(writes) > 1:
        dtype = body.get_dtype(first.input[2])
        rows = [op.Unsqueeze(node.input[2], [0], output_dtype=dtype) for node in writes]
        body.replace_inputs(last, [first.input[0], last.input[1], op.Concat(*rows, axis=0, output_dtype=dtype)])
        for node in writes[:-1]:
            body.remove_node(node.name)
    return all_indices


def _add_scan_output(graph: Any, loop: Any, body: Any, name: str) -> tuple[Any, str]:
    """Replace a loop by one with an additional scan output, a tensor of its body; return loop and output name."""
    scan_output = make_name(f"{loop.name}_indices")
    inputs, lengths = list(loop.input), loop.ragged_scan_output_to_len
    options = {
        "outputs": [*loop.output, scan_output],
        "shapes": [*loop.output_shapes, [-1, -1]],
        "dtypes": [*loop.output_dtypes, TensorProto.INT64],
        "branches": dict(loop.get_body_graphs()),
    }
    graph.remove_node(loop.name)
    body.outputs.append(name)
    extended = graph.make_node("Loop", inputs, name=loop.name, **options)
    extended.ragged_scan_output_to_len = lengths
    return extended, scan_output


class _ScanOutput(GraphBuilder):
    """Replacement of a scan output: its consumers read the tensor that `finish` writes."""

    def __init__(self, graph: Any, name: str, writes: int) -> None:
        super().__init__(graph)
        self.dtype = graph.get_dtype(name)
        self.zero = fill_attribute(0, self.dtype)
        self._shape = graph.get_shape(name)
        self._result = make_name(f"{name}_in_place")
        graph.replace_all_inputs(name, self._result)
        if writes > 1:
            graph.set_shape(name, None if self._shape is None else [-1, writes, *self._shape[1:]])

    def finish(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Write the node that computes the tensor for the consumers."""
        options = {"outputs": [self._result], "shapes": [self._shape], "dtypes": [self.dtype]}
        self._write(op_type, inputs, attributes, **options)


def _append_zeros(graph: Any, name: str, array: _WrittenArray) -> None:
    """Extend a scan output (iterations, ...) by zeros to the length of its array."""
    op = _ScanOutput(graph, name, array.writes)
    missing_count = op.Max(op.Sub(cast_indices(op, array.size), op.dims(name, end=1)), [0])
    zeros = op.ConstantOfShape(op.Concat(missing_count, op.dims(name, 1), axis=0), value=op.zero)
    op.finish("Concat", name, zeros, axis=0)


def _move_items(graph: Any, name: str, index: str, array: _WrittenArray) -> None:
    """Move the items of a scan output, (iterations, ...) or (iterations, writes, ...), to their indices."""
    # A row of zeros with index -1 is put in front of the items (items, ...). For each index of the array, the largest
    # row number with this index is gathered, else row 0: the last of several writes counts, unwritten items are zero.
    op = _ScanOutput(graph, name, array.writes)
    length = cast_indices(op, array.size)
    indices = op.Reshape(index, [-1])
    item_shape = op.dims(name, 1 if array.writes == 1 else 2)
    rows = name
    if array.writes > 1:
        rows = op.Reshape(name, op.Concat(op.Shape(indices), item_shape, axis=0), output_dtype=op.dtype)
    zero_row = op.ConstantOfShape(op.concat_shape(1, item_shape), value=op.zero)
    rows = op.Concat(zero_row, rows, axis=0, output_dtype=op.dtype)
    indices = op.concat_shape(-1, indices)
    max_index = op.ReduceMax(op.Concat(op.Sub(length, [1]), indices, axis=0), keepdims=0)
    all_indices = op.Range(0, op.Add(max_index, 1), 1)
    is_same = op.Equal(op.Unsqueeze(all_indices, [1]), indices)
    last_row = op.ReduceMax(op.Where(is_same, op.arange(op.Shape(indices)), 0), [1], keepdims=0)
    op.finish("Gather", rows, last_row, axis=0)


def _find_input_index(graph: Any, name: str) -> int | None:
    """Return the index of the input, of a body or condition, that a tensor is a copy of; None for other tensors."""
    source = find_source(graph, name)
    inputs = list(graph.input_names)
    return inputs.index(source) if source in inputs else None


def _is_constant(node: Any, number: int) -> bool:
    """Return True if a node is a constant with one element, equal to `number`."""
    is_constant = node is not None and bool(node.is_const())
    return is_constant and node.get_tensor_value(as_list=False).tolist() in (number, [number])


def tensor_list_stack(graph: Any, node: Any) -> RejectionReason:
    """Remove `TensorListStack`: the array is already a tensor (items, ...); tf2onnx would read the scan output."""
    source = find_source(graph, node.input[0], ("Identity",))
    if graph.get_node_by_output(source).type in CREATING_OPS:
        return "no node writes to its `TensorArray`"
    graph.remove_node(node.name)
    graph.replace_all_inputs(node.output[0], source)
    return None
