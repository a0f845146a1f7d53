"""Handlers that decode strings to code points (`UnicodeDecode`) or UTF-8 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import Replacement, constant_of
from .string_builder import CHARACTER, INT64, STRING, Strings

# of 0 to 4 bytes: what each counts in the code point, and what the marks in all of them add to that
_WEIGHTS = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [64, 1, 0, 0], [4096, 64, 1, 0], [2**18, 4096, 64, 1]])
_MARKED = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0xC0, 128, 0, 0], [0xE0, 128, 128, 0], [0xF0, 128, 128, 128]])
_MARKS = (_WEIGHTS * _MARKED).sum(axis=1)
_PLACES = 256 ** np.arange(4)


def decode(graph: Any, node: Any) -> None:
    """`UnicodeDecode` of UTF-8."""
    if node.get_attr_str("input_encoding") != "UTF-8" or node.get_attr_value("replace_control_characters", False):
        return
    (splits, codes), text, shapes, kinds = node.output, node.input[0], node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    write = Strings(graph)
    flat, _, counts = _flat(write, text)
    numbers, size = _bytes(write, flat)
    weighted = write("ReduceSum", write("Mul", numbers, write("Gather", _WEIGHTS, size)), [1], keepdims=0)
    found = write("Sub", weighted, write("Gather", _MARKS, size))
    write.named(splits, "Cast", write.sums(counts), to=kinds[0], shape=shapes[0], gives=kinds[0])
    write.named(codes, "Cast", found, to=kinds[1], shape=shapes[1], gives=kinds[1])


def split_bytes(graph: Any, node: Any) -> None:
    """`StringSplit` at nothing, which is at bytes, where `DecodeRaw` makes numbers of them: `bytes_split`."""
    delimiter, (indices, values, size) = constant_of(graph, node.input[1]), node.output
    readers = graph.find_output_consumers(values)
    if delimiter is None or delimiter.item() != "" or node.get_attr_value("skip_empty", True) or not readers:
        return
    if values in graph.outputs or not all(each.type in ("Shape", "Size") or _is_raw(each) for each in readers):
        return
    text, shapes = node.input[0], node.output_shapes
    graph.remove_node(node.name)
    write = Strings(graph)
    flat, row, counts = _flat(write, text)
    numbers, many = _bytes(write, flat)
    there = write("Less", np.arange(4), write("Unsqueeze", many, [1]))
    texts = write("Shape", counts)
    lengths = write("ScatterElements", write("Expand", np.int64(0), texts), row, many, axis=0, reduction="add")
    longest = write.largest(lengths)
    inside = write("Less", write.up_to(longest), write("Unsqueeze", lengths, [1]))
    found = write("GatherND", numbers, write.places(there))
    write.named(indices, "Identity", write.places(inside), shape=shapes[0], gives=INT64)
    write.named(values, "Cast", found, to=TensorProto.UINT8, shape=shapes[1], gives=TensorProto.UINT8)
    write.named(size, "Concat", texts, longest, shape=shapes[2], gives=INT64, axis=0)
    graph.set_dtype(values, TensorProto.UINT8)


def raw(graph: Any, node: Any) -> None:
    """`DecodeRaw` of what `split_bytes` left as numbers."""
    if graph.get_dtype(node.input[0]) == TensorProto.UINT8:
        write = Replacement(graph, node)
        write.last("Unsqueeze", write.inputs[0], [1])


def _is_raw(node: Any) -> bool:
    return bool(node.type == "DecodeRaw" and node.output_dtypes[0] == TensorProto.UINT8)


def _flat(write: Strings, text: str) -> tuple[str, str, str]:
    """Return the characters of texts one after the other, the text of each, and how many each text has."""
    characters = write.tokens(text, CHARACTER)
    there = write("Not", write.is_one_of(characters, [""]))
    places = write.places(there)
    row = write("Squeeze", write("Slice", places, [0], [1], [1]), [1])
    return write("GatherND", characters, places, gives=STRING), row, write.count(there)


def _bytes(write: Strings, characters: str) -> tuple[str, str]:
    """Return the bytes of characters, (characters, 4), and how many of those each has."""
    packed, counts = write.bytes_of(characters)
    return write("Mod", write("Div", write("Unsqueeze", packed, [1]), _PLACES), np.int64(256)), counts
