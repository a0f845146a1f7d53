"""Handlers for loops that write a `TensorArray`.

tf2onnx 1.17 makes of each `TensorArray` that a loop writes a scan output of `Loop`: as long as the loop has steps, with
the element of each step in the place of the step. TensorFlow's has the length it was made with, holds an element where
its index says, several a step if need be, and zeros where nothing was written. Where the index is not the number of
the step, it becomes a scan output too, and elements are put where it says; where the loop may end early, zeros are put
behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ..._errors import UnsupportedModelError
from ..._private_api.tf2onnx_internals import converted_while, function_of, make_name
from ..graph_builder import Writer
from .tensor_arrays import MADE, WRITE, keep_states, source_of

_REFUSED = (
    "A loop writes a `TensorArray` in a way that has no form in ONNX: {}. Make a tensor of its final size before the "
    "loop, and write with `tf.tensor_scatter_nd_update`."
)


@dataclass(frozen=True)
class _Written:
    """A list that a loop writes.

    Attributes:
        size: The tensor that is the length it was made with.
        index: The tensor in the body that says where elements are written, a vector; or None: at the step's number.
        each: How many are written in one step.
        is_full: Whether each of its places is written for sure.
    """

    size: str
    index: str | None
    each: int
    is_full: bool


def loop(graph: Any, node: Any) -> None:
    """`While` as tf2onnx converts it, but for the lists that it writes; of `tf.while_loop` alone.

    Its first two states are the number of the step and the most there may be. What is made otherwise has none, and
    tf2onnx takes any two for them.
    """
    if not _counts(function_of(node, "body")):
        return
    for place in (0, 1):
        _count_in_int64(graph, node, place)
    keep_states(graph, node)
    found = _Loop(graph, node)
    body = found.body
    written = [] if body.ragged_variant_list_writes else list(found.written())
    converted_while(graph, node)
    for each in body.inputs[:2]:  # the number of the step, and whether to go on: onnxruntime must know their rank
        body.set_shape(each.output[0], [])
    made = graph.get_node_by_name(f"{node.name}_loop")
    # tf2onnx puts scan outputs behind the state, those of the last inputs first
    for each, output in zip(reversed(written), made.output[len(made.output) - len(written) :], strict=True):
        if each.is_full and each.index is None:
            continue
        index = None
        if each.index is not None:
            made, index = _scanned(graph, made, body, each.index)
        _put_in_place(graph, output, index, each)


def _count_in_int64(graph: Any, loop: Any, place: int) -> None:
    """Let a loop be given one of its two numbers in int64, as ONNX counts steps: conditions compare them."""
    write, made = Writer(graph), loop.inputs[place]
    if graph.get_dtype(loop.input[place]) != TensorProto.INT64 and not (place == 1 and made.is_const()):
        value = made.get_tensor_value(as_list=False).astype(np.int64) if made.is_const() else None
        name = write.constant(value) if value is not None else write("Cast", loop.input[place], to=TensorProto.INT64)
        graph.replace_input(loop, loop.input[place], name, place)


def _counts(body: Any) -> bool:
    """Tell whether a body adds one to its first input and hands on its second."""
    number, most = body.input_names[:2] if len(body.input_names) > 1 else ("", "")
    made = body.get_node_by_output(source_of(body, body.outputs[0]))
    if made is None or made.type not in ("Add", "AddV2") or source_of(body, body.outputs[1]) != most:
        return False
    sides = [(made.input[0], made.inputs[1]), (made.input[1], made.inputs[0])]
    return any(source_of(body, a) == number and _is_number(b, 1) for a, b in sides)


class _Loop:
    """A loop of TensorFlow before it is converted; `body` and what is in it are."""

    def __init__(self, graph: Any, node: Any) -> None:
        self._graph, self._node = graph, node
        self.body, self._condition = function_of(node, "body"), function_of(node, "cond")
        self._inputs: list[str] = list(self.body.input_names)

    def written(self) -> Iterator[_Written]:
        """Yield the lists that the loop writes, in the order of its inputs; the body writes each once then.

        Raises:
            UnsupportedModelError: It writes one in a way that cannot be told.
        """
        chains = {number: self._chain(number) for number, made in enumerate(self._node.inputs) if made.type in MADE}
        writes = [node for node in self.body.get_nodes() if node.type == WRITE]
        if len(writes) != sum(map(len, chains.values())):
            raise UnsupportedModelError(_REFUSED.format("it goes on with one that a loop around it writes"))
        for number, chain in chains.items():
            if not chain:
                raise UnsupportedModelError(_REFUSED.format("only under a condition, in a loop within it, or never"))
            lists = {self._inputs[number], *(node.output[0] for node in chain)}
            if lists & {source_of(self.body, read, ("Identity",)) for read in self.body.ta_reads}:
                raise UnsupportedModelError(_REFUSED.format("it reads what it writes"))
            size = self._node.inputs[number].input[1]
            indices = [node.input[1] for node in chain]
            if len(chain) == 1 and self._is_counter(self.body, indices[0]):
                # one that was made without places grows as it is written
                grows = _is_number(self._graph.get_node_by_output(source_of(self._graph, size)), 0)
                yield _Written(size, None, 1, grows or self._runs_to(size))
            else:
                yield _Written(size, _merged(self.body, chain), len(chain), is_full=False)

    def _chain(self, number: int) -> list[Any]:
        """Return the nodes that write a list in one step, the first first; none where they cannot be told."""
        name, found = source_of(self.body, self.body.outputs[number], ("Identity",)), []
        while name != self._inputs[number]:
            node = self.body.get_node_by_output(name)
            if node is None or node.type != WRITE:
                return []
            found.append(node)
            name = source_of(self.body, node.input[0], ("Identity",))
        return found[::-1]

    def _is_counter(self, graph: Any, name: str) -> bool:
        """Tell whether a tensor of the body, or of the condition, is the number of the step."""
        number = _input_of(graph, name)
        if number is None or number == 1 or not _is_number(self._node.inputs[number], 0):
            return False
        made = self.body.get_node_by_output(source_of(self.body, self.body.outputs[number]))
        if made is None or made.type not in ("Add", "AddV2"):
            return False
        sides = [(made.input[0], made.inputs[1]), (made.input[1], made.inputs[0])]
        return any(source_of(self.body, a) == self._inputs[number] and _is_number(b, 1) for a, b in sides)

    def _runs_to(self, size: str) -> bool:
        """Tell whether the loop ends when it has run for as many steps as a list is long, and never before."""
        waiting = [self._condition.outputs[0]]
        while waiting:
            made = self._condition.get_node_by_output(source_of(self._condition, waiting.pop()))
            if made is not None and made.type in ("And", "LogicalAnd"):
                waiting += made.input
            elif made is None or made.type != "Less" or not self._is_end(made, size):
                return False
        return True

    def _is_end(self, less: Any, size: str) -> bool:
        if not self._is_counter(self._condition, less.input[0]):
            return False
        number, end = _input_of(self._condition, less.input[1]), less.inputs[1]
        if number is None:
            end = self._condition.get_node_by_output(source_of(self._condition, less.input[1]))
        elif number == 1 or source_of(self.body, self.body.outputs[number]) == self._inputs[number]:
            if source_of(self._graph, self._node.input[number]) == source_of(self._graph, size):
                return True
            end = self._node.inputs[number]
        else:
            return False
        length = self._graph.get_node_by_output(source_of(self._graph, size))
        return length.is_const() and _is_number(end, int(length.get_tensor_value()))


def _merged(body: Any, chain: Sequence[Any]) -> str:
    """Let one node write what several do, a row each, and return the vector of their indices."""
    write, first, last = Writer(body), chain[0], chain[-1]
    indices = [write("Reshape", node.input[1], [-1]) for node in chain]
    vector = write("Cast", write("Concat", *indices, axis=0, gives=TensorProto.INT32), to=TensorProto.INT64)
    if len(chain) > 1:
        kind = body.get_dtype(first.input[2])
        rows = [write("Unsqueeze", node.input[2], [0], gives=kind) for node in chain]
        body.replace_inputs(last, [first.input[0], last.input[1], write("Concat", *rows, axis=0, gives=kind)])
        for node in chain[:-1]:
            body.remove_node(node.name)
    return vector


def _scanned(graph: Any, loop: Any, body: Any, name: str) -> tuple[Any, str]:
    """Return a loop with one more scan output, a tensor of its body, and the name of that output."""
    inputs, outputs, branches = list(loop.input), list(loop.output), dict(loop.get_body_graphs())
    shapes, dtypes = list(loop.output_shapes), list(loop.output_dtypes)
    lengths = loop.ragged_scan_output_to_len
    graph.remove_node(loop.name)
    body.outputs.append(name)
    found = make_name(f"{loop.name}_indices")
    again = graph.make_node(
        "Loop",
        inputs,
        outputs=[*outputs, found],
        shapes=[*shapes, [-1, -1]],
        dtypes=[*dtypes, TensorProto.INT64],
        name=loop.name,
        branches=branches,
    )
    again.ragged_scan_output_to_len = lengths
    return again, found


def _put_in_place(graph: Any, scanned: str, index: str | None, written: _Written) -> None:
    """Let all that reads a scan output read a list of the right length, each element in its place."""
    kind, shape = graph.get_dtype(scanned), graph.get_shape(scanned)
    result = make_name(f"{scanned}_in_place")
    graph.replace_all_inputs(scanned, result)
    if written.each > 1:
        graph.set_shape(scanned, None if shape is None else [-1, written.each, *shape[1:]])

    write, zero = Writer(graph), helper.make_tensor("value", kind, [1], [0])

    def last(op: str, *inputs: str, **attributes: Any) -> None:
        write.named(result, op, *inputs, shape=shape, gives=kind, **attributes)

    length = write("Cast", write("Reshape", written.size, [-1], gives=TensorProto.INT32), to=TensorProto.INT64)
    if index is None:
        steps, element = write.sizes(scanned, end=1), write.sizes(scanned, 1)
        left = write("Max", write("Sub", length, steps), [0])
        last("Concat", scanned, write("ConstantOfShape", write("Concat", left, element, axis=0), value=zero), axis=0)
        return
    places = write("Reshape", index, [-1])
    element = write.sizes(scanned, 1 if written.each == 1 else 2)
    rows = scanned
    if written.each > 1:
        rows = write("Reshape", scanned, write("Concat", write("Shape", places), element, axis=0), gives=kind)
    # a row of zeros before them is what places get that nothing was written to; of several writes the last counts
    row = write("ConstantOfShape", write("Concat", [1], element, axis=0), value=zero)
    rows = write("Concat", row, rows, axis=0, gives=kind)
    places = write("Concat", [-1], places, axis=0)
    greatest = write("ReduceMax", write("Concat", write("Sub", length, [1]), places, axis=0), keepdims=0)
    every_place = write("Range", 0, write("Add", greatest, 1), 1)
    every_row = write("Range", 0, write("Squeeze", write("Shape", places)), 1)
    same = write("Equal", write("Unsqueeze", every_place, [1]), places)
    last("Gather", rows, write("ReduceMax", write("Where", same, every_row, 0), [1], keepdims=0), axis=0)


def _input_of(graph: Any, name: str) -> int | None:
    """Return the number of the input of a body or condition that a tensor is; None if it is none."""
    source, inputs = source_of(graph, name), list(graph.input_names)
    return inputs.index(source) if source in inputs else None


def _is_number(node: Any, number: int) -> bool:
    return (
        node is not None
        and bool(node.is_const())
        and node.get_tensor_value(as_list=False).tolist() in (number, [number])
    )


def stacked(graph: Any, node: Any) -> None:
    """`TensorListStack` of what a loop wrote: by now a tensor, which tf2onnx only takes from the loop itself."""
    source = source_of(graph, node.input[0], ("Identity",))
    if graph.get_node_by_output(source).type not in MADE:
        graph.remove_node(node.name)
        graph.replace_all_inputs(node.output[0], source)
