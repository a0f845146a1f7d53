"""Handlers for KerasHub's `WordPieceTokenizer`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from flatbuffers import encode, number_types, packer, table

from ..graph_builder import Writer, constant_of
from ..text import character_classes
from .string_builder import BOOL, CHARACTER, EMPTY, INT64, STRING, Strings


def split(graph: Any, node: Any) -> None:
    """`RegexSplitWithOffsets` at characters, some of which are kept as words of their own."""
    delimiter, kept = (constant_of(graph, each) for each in node.input[1:])
    if delimiter is None or kept is None or _is_read(graph, node.output[1:3]):
        return
    patterns = [str(each.item()) for each in (delimiter, kept)]
    if not all(map(character_classes.is_of_one, patterns)):
        return
    at, alone = map(character_classes.matching, patterns)
    words = f"{character_classes.expression(~at)}+|{character_classes.expression(at & alone)}"
    text, outputs, shapes = node.input[0], node.output, node.output_shapes
    graph.remove_node(node.name)
    write = Strings(graph)
    found = write.tokens(text, words)
    there = write("Not", write.is_one_of(found, [""]))
    write.named(outputs[0], "GatherND", found, write.places(there), shape=shapes[0], gives=STRING)
    write.named(outputs[3], "Identity", write.sums(write.count(there)), shape=shapes[3], gives=INT64)


class _Vocabulary(NamedTuple):
    """What the model of a `FastWordpieceTokenizer` holds.

    Attributes:
        pieces: Their numbers, those within a word behind the indicator.
        indicator: What tells those.
        unknown: The number of a word that has other pieces.
        most: How many bytes a word has at most.
    """

    pieces: dict[str, int]
    indicator: str
    unknown: int
    most: int

    @property
    def longest(self) -> int:
        """How many characters a piece has at most."""
        return max(map(len, self.pieces))


_BYTES, _INDICATOR, _UNKNOWN, _PIECES, _ARE_WITHIN = 4, 5, 7, 12, 13  # fields of the model, in the order of its schema


def _vocabulary(model: bytes) -> _Vocabulary | None:
    read = table.Table(model, encode.Get(packer.uoffset, model, 0))
    places = {each: read.Offset(4 + 2 * each) for each in (_BYTES, _INDICATOR, _UNKNOWN, _PIECES, _ARE_WITHIN)}
    if not places[_PIECES] or not places[_ARE_WITHIN] or not places[_INDICATOR]:
        return None  # written without what detokenizing wants
    indicator = read.String(read.Pos + places[_INDICATOR]).decode()
    first, is_within = read.Vector(places[_PIECES]), read.Vector(places[_ARE_WITHIN])
    words = [read.String(first + 4 * each).decode() for each in range(read.VectorLen(places[_PIECES]))]
    pieces = {(indicator if model[is_within + each] else "") + word: each for each, word in enumerate(words)}
    numbers = [
        read.Get(kind, read.Pos + places[each]) if places[each] else 0
        for each, kind in ((_UNKNOWN, number_types.Int32Flags), (_BYTES, number_types.Uint32Flags))
    ]
    return _Vocabulary(pieces, indicator, *numbers)


def pieces(graph: Any, node: Any) -> None:
    """`FastWordpieceTokenizeWithOffsets` of words: from the left, the longest piece of the vocabulary each time."""
    model = constant_of(graph, node.input[1])
    if model is None or _is_read(graph, [node.output[0], *node.output[3:]]):
        return
    vocabulary = _vocabulary(model.astype(np.uint8).tobytes())
    if vocabulary is None or "" in vocabulary.pieces:
        return
    words, outputs, shapes = node.input[0], node.output, node.output_shapes
    graph.remove_node(node.name)
    write = Strings(graph)
    characters = write.tokens(words, CHARACTER)
    there = write("Not", write.is_one_of(characters, [""]))
    places, lengths = write.places(there), write.count(there)
    row, column = (write("Squeeze", each, [1]) for each in write.all_of("Split", 2, places, axis=1, num_outputs=2))
    flat = write("GatherND", characters, places, gives=STRING)
    longest, piece = _longest(write, flat, column, write("Sub", write("Gather", lengths, row), column), vocabulary)
    begins = write.sums(lengths)
    reached, is_known = _walked(write, longest, begins, lengths)
    is_known = write("And", is_known, _is_short(write, flat, begins, vocabulary.most))
    whole = write("Gather", is_known, row)
    is_first = write("Equal", column, np.int64(0))
    kept = write("Or", write("And", whole, reached), write("And", write("Not", whole), is_first))
    ids = write("Where", whole, piece, np.int64(vocabulary.unknown))
    ends = write.sums(write("Cast", kept, to=INT64))
    write.named(outputs[1], "Compress", ids, kept, shape=shapes[1], gives=INT64, axis=0)
    write.named(outputs[2], "Gather", ends, begins, shape=shapes[2], gives=INT64)


def _longest(write: Strings, flat: str, column: str, room: str, vocabulary: _Vocabulary) -> list[str]:
    """Return how long the longest piece is that begins at each character, 0 where there is none, and its number."""
    last = write.sizes(flat, 0, 1)
    begun = write("Where", write("Equal", column, np.int64(0)), EMPTY, np.array(vocabulary.indicator, object))
    begun = write.concatenated(begun, flat, 1)
    ended = write("Concat", flat, np.array([""], object), axis=0)
    numbers = write.up_to(last)
    none = write("Expand", np.int64(0), last)

    def step(writer: Writer, number: str, text: str, longest: str, piece: str) -> list[str]:
        inner = Strings(writer.graph)
        length = inner("Add", number, np.int64(1))
        found = inner.looked_up(text, vocabulary.pieces, -1)
        is_piece = inner("And", inner("GreaterOrEqual", found, np.int64(0)), inner("GreaterOrEqual", room, length))
        behind = inner("Gather", ended, inner("Min", inner("Add", numbers, length), last), gives=STRING)
        return [
            inner.concatenated(text, behind, 1),
            inner("Where", is_piece, length, longest),
            inner("Where", is_piece, found, piece),
        ]

    state = _of_one_axis(write, begun, none, none)
    return write.repeated(np.int64(vocabulary.longest), state, step)[1:]


def _walked(write: Strings, longest: str, begins: str, lengths: str) -> tuple[str, str]:
    """Return at which characters pieces begin, and which words have pieces to their end."""
    size = write.sizes(longest, 0, 1)
    ended = write("Concat", longest, [0], axis=0)
    ends = write("Slice", begins, [1], [2**31], [0])
    none = write("Expand", np.int64(0), write("Shape", ended))

    def step(inner: Writer, number: str, place: str, reached: str) -> list[str]:
        here = inner("Where", inner("Less", place, ends), place, size)
        ones = inner("Expand", np.int64(1), inner("Shape", here))
        further = inner("Add", place, inner("Gather", ended, here))
        return [further, inner("ScatterElements", reached, here, ones, axis=0)]

    count = write("Squeeze", write.largest(lengths), [0])
    state = _of_one_axis(write, write("Slice", begins, [0], [-1], [0]), none)
    place, reached = write.repeated(count, state, step)
    return write("Cast", write("Slice", reached, [0], size, [0]), to=BOOL), write("Equal", place, ends)


def _is_short(write: Strings, flat: str, begins: str, most: int) -> str:
    """Return which words have no more bytes than that."""
    ends = write("Gather", write.sums(write.bytes_of(flat)[1]), begins)
    counts = write("Sub", write("Slice", ends, [1], [2**31], [0]), write("Slice", ends, [0], [-1], [0]))
    return write("LessOrEqual", counts, np.int64(most))


def _of_one_axis(write: Strings, *tensors: str) -> list[str]:
    """Return tensors, and let tf2onnx know that they have one axis."""
    for each in tensors:
        write.graph.set_shape(each, [-1])
    return [*tensors]


def _is_read(graph: Any, outputs: list[str]) -> bool:
    return any(graph.find_output_consumers(each) for each in outputs) or any(each in graph.outputs for each in outputs)
