"""Handlers for string operators: case, strip, join, split, compare.

Letters are those of ASCII to TensorFlow's `StringLower`, and spaces to its `StringSplitV2`. ONNX's `StringNormalizer`
lowers all others too, and its `StringSplit` knows the blank alone.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import constant_of
from ..text import unicode_and_bytes
from .string_builder import CHARACTER, EMPTY, INT64, STRING, STRIPPED, WORD, Strings, Text

UPPER, LOWER = string.ascii_uppercase, string.ascii_lowercase


def lower(graph: Any, node: Any) -> None:
    """`StringLower` of ASCII; with an encoding it is ICU's, which no operator is."""
    _exchange(graph, node, dict(zip(UPPER, LOWER, strict=True)), "A-Z")


def upper(graph: Any, node: Any) -> None:
    """`StringUpper`, likewise."""
    _exchange(graph, node, dict(zip(LOWER, UPPER, strict=True)), "a-z")


def _exchange(graph: Any, node: Any, others: Mapping[str, str], letters: str) -> None:
    if node.get_attr_value("encoding", b"") in (b"", ""):
        write = Text(graph, node)
        write.join(write.exchanged(write.tokens(write.inputs[0], f"[{letters}]|[^{letters}]+"), others))


def strip(graph: Any, node: Any) -> None:
    """`StringStrip`: from the first character that is no space to the last."""
    write = Text(graph, node)
    write.join(write.tokens(write.inputs[0], STRIPPED))


def join(graph: Any, node: Any) -> None:
    """`StringJoin`: one after the other."""
    if any(graph.get_rank(each) is None for each in node.input):
        return
    separator = node.get_attr_str("separator") if node.get_attr("separator") else ""
    write = Text(graph, node)
    text, rank = write.inputs[0], graph.get_rank(write.inputs[0])
    for other in write.inputs[1:]:
        text = write.concatenated(text, np.array(separator, object), rank) if separator else text
        rank = max(rank, graph.get_rank(other))
        text = write.concatenated(text, other, rank)
    write.last("Identity", text)


def same(graph: Any, node: Any) -> None:
    """`Equal` and `NotEqual` of strings, with one that is known or of any."""
    if graph.get_dtype(node.input[0]) != STRING:
        convert_with_tf2onnx(graph, node)
        return
    known = [(place, constant_of(graph, each)) for place, each in enumerate(node.input)]
    texts = [(place, str(each.item())) for place, each in known if each is not None and each.ndim == 0]
    last = "Not" if node.type == "NotEqual" else "Identity"
    write = Text(graph, node)
    if texts:
        place, text = texts[0]
        write.last(last, write.is_one_of(write.inputs[1 - place], [text]))
    else:
        one, other = write.inputs
        write.last(last, write.same(one, other, len(write.shape or ())))


def split(graph: Any, node: Any) -> None:
    """`StringSplitV2`: at spaces, or at a text that is known."""
    separator = constant_of(graph, node.input[1])
    if separator is None or node.get_attr_value("maxsplit", -1) >= 0:
        return
    text, outputs, shapes = node.input[0], node.output, node.output_shapes
    graph.remove_node(node.name)
    write = Strings(graph)
    if delimiter := str(separator.item()):
        parts, counts = write.parts(text, delimiter)
        column = write("Expand", EMPTY, write("Concat", write.sizes(parts, 0, 1), [1], axis=0))
        parts = write("Concat", parts, column, axis=1)
        counts = write("Max", counts, np.int64(1))  # an empty text has one part
        there = write("Less", write.columns(parts), write("Unsqueeze", counts, [1]))
    else:
        parts = write.tokens(text, WORD)
        there = write("Not", write.is_one_of(parts, [""]))
        counts = write.count(there)
    places, rows = write.places(there), write.sizes(parts, 0, 1)
    write.named(outputs[0], "Identity", places, shape=shapes[0], gives=INT64)
    write.named(outputs[1], "GatherND", parts, places, shape=shapes[1], gives=STRING)
    write.named(outputs[2], "Concat", rows, write.largest(counts), shape=shapes[2], gives=INT64, axis=0)


def split_characters(graph: Any, node: Any) -> None:
    """`UnicodeDecode`: as texts where `UnicodeEncode` makes one of each character again: `tf.strings.unicode_split`."""
    handed_on = _as_texts(graph, node.output[1])
    if not handed_on or node.get_attr_str("input_encoding") != "UTF-8":
        unicode_and_bytes.decode(graph, node)
        return
    (splits, values), text, shapes, kind = node.output, node.input[0], node.output_shapes, node.output_dtypes[0]
    graph.remove_node(node.name)
    write = Strings(graph)
    characters = write.tokens(text, CHARACTER)
    there = write("Not", write.is_one_of(characters, [""]))
    write.named(splits, "Cast", write.sums(write.count(there)), to=kind, shape=shapes[0], gives=kind)
    write.named(values, "GatherND", characters, write.places(there), shape=shapes[1], gives=STRING)
    for each in handed_on:
        graph.set_dtype(each, STRING)


def _as_texts(graph: Any, values: str) -> list[str]:
    """Return what code points are handed on as, if a text of each is all that is made of them."""
    found = []
    for reader in graph.find_output_consumers(values):
        if reader.type in ("ExpandDims", "Reshape", "Identity"):
            further = _as_texts(graph, reader.output[0])
            if not further:
                return []
            found += [reader.output[0], *further]
        elif reader.type == "UnicodeEncode" and _is_one_by_one(graph, reader):
            found.append(values)
        elif reader.type not in ("Shape", "Size"):
            return []
    return found


def _is_one_by_one(graph: Any, encoder: Any) -> bool:
    """Tell whether texts are made of one code point each: where they begin is a `Range`."""
    starts = graph.get_node_by_output(encoder.input[1])
    while starts is not None and starts.type in ("Mul", "Identity", "Cast", "Reshape", "ConcatV2", "Concat"):
        known = [constant_of(graph, name) for name in starts.input]
        if starts.type == "Mul" and not any(each is not None and (each == 1).all() for each in known):
            return False
        starts = next((each for each in starts.inputs if each is not None and not each.is_const()), None)
    return starts is not None and starts.type == "Range" and encoder.get_attr_str("output_encoding") == "UTF-8"


def texts_of_characters(graph: Any, node: Any) -> None:
    """`UnicodeEncode` of what `split_characters` left as texts."""
    if graph.get_dtype(node.input[0]) == STRING:
        write = Text(graph, node)
        write.last("Reshape", write.inputs[0], [-1])
