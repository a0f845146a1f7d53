"""Handlers for KerasHub's `WordPieceTokenizer`."""

from typing import Any, NamedTuple

import numpy as np
from flatbuffers import encode, number_types, packer, table

from ..graph_builder import GraphBuilder, Refusal, constant_value
from ..text import character_classes
from .string_builder import BOOL, CHARACTER, EMPTY, INT64, STRING, StringBuilder, StringReplacement


def regex_split_with_offsets(graph: Any, node: Any) -> Refusal:
    """Convert `RegexSplitWithOffsets` at single characters, some of which are kept as words."""
    delimiter, kept_delimiter = (constant_value(graph, name) for name in node.input[1:])
    if delimiter is None or kept_delimiter is None or _is_read(graph, node.output[1:3]):
        return "its patterns are not constant, or its offsets are read"
    patterns = [str(pattern.item()) for pattern in (delimiter, kept_delimiter)]
    if not all(map(character_classes.is_single_character_pattern, patterns)):
        return "its patterns match more than single characters"
    splits, stays = map(character_classes.match_characters, patterns)
    words = f"{character_classes.format_class(~splits)}+|{character_classes.format_class(splits & stays)}"
    op = StringReplacement(graph, node)
    tokens = op.tokenize(op.inputs[0], words)
    mask = op.is_nonempty(tokens)
    op.finish("GatherND", tokens, op.true_indices(mask))
    return op.finish("Identity", op.row_splits(op.count(mask)), output=3)


class _Vocabulary(NamedTuple):
    """The model of a `FastWordpieceTokenizer`.

    Attributes:
        pieces: The number of each piece; pieces within a word have the indicator as prefix.
        indicator: The prefix.
        unknown: The number of words that do not consist of pieces.
        max_bytes: The largest number of bytes of a word.
    """

    pieces: dict[str, int]
    indicator: str
    unknown: int
    max_bytes: int

    @property
    def max_characters(self) -> int:
        """The largest number of characters of a piece."""
        return max(map(len, self.pieces))


# Fields of the model, in the order of its FlatBuffers schema
_MAX_BYTES, _INDICATOR, _UNKNOWN, _PIECES, _IS_SUFFIX = 4, 5, 7, 12, 13


def _read_vocabulary(model: bytes) -> _Vocabulary | None:
    """Return the vocabulary of a model, None if the model was written without support for detokenization."""
    read = table.Table(model, encode.Get(packer.uoffset, model, 0))
    fields = (_MAX_BYTES, _INDICATOR, _UNKNOWN, _PIECES, _IS_SUFFIX)
    offsets = {field: read.Offset(4 + 2 * field) for field in fields}
    if not offsets[_PIECES] or not offsets[_IS_SUFFIX] or not offsets[_INDICATOR]:
        return None
    indicator = read.String(read.Pos + offsets[_INDICATOR]).decode()
    first = read.Vector(offsets[_PIECES])
    is_within = read.Vector(offsets[_IS_SUFFIX])
    words = [read.String(first + 4 * index).decode() for index in range(read.VectorLen(offsets[_PIECES]))]
    pieces = {(indicator if model[is_within + index] else "") + word: index for index, word in enumerate(words)}
    numbers = [
        read.Get(kind, read.Pos + offsets[field]) if offsets[field] else 0
        for field, kind in ((_UNKNOWN, number_types.Int32Flags), (_MAX_BYTES, number_types.Uint32Flags))
    ]
    return _Vocabulary(pieces, indicator, *numbers)


def fast_wordpiece_tokenize_with_offsets(graph: Any, node: Any) -> Refusal:
    """Convert `FastWordpieceTokenizeWithOffsets` of words: from the left, the longest piece each time.

    The longest piece is found for every character of every word at once, as if a piece began there (`_longest`). Then
    the pieces of each word are followed from its first character: a piece of n characters leads n characters on
    (`_begins_of_pieces`). A word is known if the last piece ends where the word ends.
    """
    model = constant_value(graph, node.input[1])
    if model is None or _is_read(graph, [node.output[0], *node.output[3:]]):
        return "its model is not constant, or its pieces or offsets are read"
    vocabulary = _read_vocabulary(model.astype(np.uint8).tobytes())
    if vocabulary is None or "" in vocabulary.pieces:
        return "its model has no pieces for detokenization, or an empty one"
    op = StringReplacement(graph, node)
    characters = op.tokenize(op.inputs[0], CHARACTER)
    mask = op.is_nonempty(characters)
    indices = op.true_indices(mask)
    lengths = op.count(mask)
    row, column = (
        op.Squeeze(part, [1]) for part in op.write_outputs("Split", [True, True], indices, axis=1, num_outputs=2)
    )
    flat = op.GatherND(characters, indices, output_dtype=STRING)
    longest, piece = _find_longest_pieces(op, flat, column, op.Sub(op.Gather(lengths, row), column), vocabulary)
    begins = op.row_splits(lengths)
    is_begin, is_known = _follow_pieces(op, longest, begins, lengths)
    is_known = op.And(is_known, _has_max_bytes(op, flat, begins, vocabulary.max_bytes))
    # One number for each begin of a piece in a known word, and for the first character of an unknown word
    in_known_word = op.Gather(is_known, row)
    is_first = op.Equal(column, np.int64(0))
    has_number = op.Or(op.And(in_known_word, is_begin), op.And(op.Not(in_known_word), is_first))
    ids = op.Where(in_known_word, piece, np.int64(vocabulary.unknown))
    ends = op.row_splits(op.Cast(has_number, to=INT64))
    op.finish("Compress", ids, has_number, output=1, axis=0)
    return op.finish("Gather", ends, begins, output=2)


def _find_longest_pieces(op: StringBuilder, flat: str, column: str, room: str, vocabulary: _Vocabulary) -> list[str]:
    """Return the length of the longest piece that begins at each character, 0 if there is none, and its number.

    Step n of a `Loop` looks up the texts of n characters from each character, behind the indicator within a word, and
    appends one character to each.

    Args:
        op: The builder.
        flat: The characters of all words, (characters,).
        column: The index of each character in its word, (characters,).
        room: The number of characters from each to the end of its word, (characters,).
        vocabulary: The pieces.
    """
    last = op.dims(flat, 0, 1)
    prefix = op.Where(op.Equal(column, np.int64(0)), EMPTY, np.array(vocabulary.indicator, object))
    begun = op.concatenate(prefix, flat, 1)
    followed = op.Concat(flat, np.array([""], object), axis=0)
    numbers = op.arange(last)
    zeros = op.Expand(np.int64(0), last)

    def step(body: GraphBuilder, index: str, text: str, longest: str, piece: str) -> list[str]:
        op = StringBuilder(body.graph)
        length = op.Add(index, np.int64(1))
        number = op.look_up(text, vocabulary.pieces, -1)
        is_piece = op.And(op.GreaterOrEqual(number, np.int64(0)), op.GreaterOrEqual(room, length))
        next_character = op.Gather(followed, op.Min(op.Add(numbers, length), last), output_dtype=STRING)
        return [
            op.concatenate(text, next_character, 1),
            op.Where(is_piece, length, longest),
            op.Where(is_piece, number, piece),
        ]

    return op.for_loop([vocabulary.max_characters], step, *_set_rank_1(op, begun, zeros, zeros))[1:]


def _follow_pieces(op: StringBuilder, longest: str, begins: str, lengths: str) -> tuple[str, str]:
    """Return a mask of the characters at which pieces begin, and a mask of the words with pieces to their end.

    A `Loop` has a position in each word, which moves on by the longest piece there. Positions stay where no piece
    begins, and at the end of their word.

    Args:
        op: The builder.
        longest: The length of the longest piece at each character, (characters,).
        begins: The start of each word and the end of the last, (words + 1,).
        lengths: The number of characters of each word, (words,).
    """
    size = op.dims(longest, 0, 1)
    steps = op.Concat(longest, [0], axis=0)
    ends = op.Slice(begins, [1], [2**31], [0])
    zeros = op.Expand(np.int64(0), op.Shape(steps))

    def step(op: GraphBuilder, index: str, position: str, is_begin: str) -> list[str]:
        inside = op.Where(op.Less(position, ends), position, size)
        ones = op.Expand(np.int64(1), op.Shape(inside))
        moved = op.Add(position, op.Gather(steps, inside))
        return [moved, op.ScatterElements(is_begin, inside, ones, axis=0)]

    state = _set_rank_1(op, op.Slice(begins, [0], [-1], [0]), zeros)
    position, is_begin = op.for_loop(op.maximum(lengths), step, *state)
    return op.Cast(op.Slice(is_begin, [0], size, [0]), to=BOOL), op.Equal(position, ends)


def _has_max_bytes(op: StringBuilder, flat: str, begins: str, max_bytes: int) -> str:
    """Return a mask of the words with at most so many bytes."""
    ends = op.Gather(op.row_splits(op.encode_utf8(flat)[1]), begins)
    counts = op.Sub(op.Slice(ends, [1], [2**31], [0]), op.Slice(ends, [0], [-1], [0]))
    return op.LessOrEqual(counts, np.int64(max_bytes))


def _set_rank_1(op: StringBuilder, *tensors: str) -> list[str]:
    """Return 1-D tensors, whose rank tf2onnx cannot infer."""
    for tensor in tensors:
        op.graph.set_shape(tensor, [-1])
    return [*tensors]


def _is_read(graph: Any, outputs: list[str]) -> bool:
    return any(graph.find_output_consumers(name) or name in graph.outputs for name in outputs)
