"""Handlers of the TensorFlow Text operators of KerasHub's `WordPieceTokenizer`."""

from typing import Any, NamedTuple

import numpy as np
from flatbuffers import encode, number_types, packer, table

from ..graph_builder import GraphBuilder, RejectionReason, constant_value
from ..text import character_classes
from .string_builder import BOOL, CHARACTER, EMPTY, INT64, STRING, StringBuilder, StringReplacement


def regex_split_with_offsets(graph: Any, node: Any) -> RejectionReason:
    """Convert `RegexSplitWithOffsets` of texts (texts,), at single characters, to words and row splits."""
    # Some delimiters are words too. tf2onnx writes an operator of onnxruntime-extensions
    delimiter, kept_delimiter = (constant_value(graph, name) for name in node.input[1:])
    if delimiter is None or kept_delimiter is None or _is_read(graph, node.output[1:3]):
        return "its patterns are not constant, or its offsets are used"
    patterns = [str(pattern.item()) for pattern in (delimiter, kept_delimiter)]
    if not all(map(character_classes.is_single_character_pattern, patterns)):
        return "its patterns must match single characters"
    is_delimiter, is_kept = map(character_classes.match_characters, patterns)
    words = f"{character_classes.format_class(~is_delimiter)}+|{character_classes.format_class(is_delimiter & is_kept)}"
    op = StringReplacement(graph, node)
    tokens = op.tokenize(op.inputs[0], words)
    mask = op.is_nonempty(tokens)
    op.finish("GatherND", tokens, op.true_indices(mask))
    return op.finish("Identity", op.row_splits(op.count_true(mask)), output=3)


class _Vocabulary(NamedTuple):
    """The model of a `FastWordpieceTokenizer`.

    Attributes:
        pieces: The id of each piece; pieces that continue a word have the suffix indicator in front.
        indicator: The suffix indicator, usually "##".
        unknown: The id of words that do not consist of pieces.
        max_bytes: The maximal number of bytes of a known word.
    """

    pieces: dict[str, int]
    indicator: str
    unknown: int
    max_bytes: int

    @property
    def max_characters(self) -> int:
        """The maximal number of characters of a piece."""
        return max(map(len, self.pieces))


# Indices of fields in the FlatBuffers schema of the model; the offset of field n is at byte 4 + 2 n of the vtable
_MAX_BYTES, _INDICATOR, _UNKNOWN, _PIECES, _IS_SUFFIX = 4, 5, 7, 12, 13


def _read_vocabulary(model: bytes) -> _Vocabulary | None:
    """Return the vocabulary of a serialized model, None if the model does not support detokenization."""
    reader = table.Table(model, encode.Get(packer.uoffset, model, 0))
    fields = (_MAX_BYTES, _INDICATOR, _UNKNOWN, _PIECES, _IS_SUFFIX)
    offsets = {field: reader.Offset(4 + 2 * field) for field in fields}
    if not offsets[_PIECES] or not offsets[_IS_SUFFIX] or not offsets[_INDICATOR]:
        return None
    indicator = reader.String(reader.Pos + offsets[_INDICATOR]).decode()
    pieces_start = reader.Vector(offsets[_PIECES])
    is_suffix = reader.Vector(offsets[_IS_SUFFIX])
    texts = [reader.String(pieces_start + 4 * index).decode() for index in range(reader.VectorLen(offsets[_PIECES]))]
    pieces = {(indicator if model[is_suffix + index] else "") + word: index for index, word in enumerate(texts)}
    settings = [
        reader.Get(flags, reader.Pos + offsets[field]) if offsets[field] else 0
        for field, flags in ((_UNKNOWN, number_types.Int32Flags), (_MAX_BYTES, number_types.Uint32Flags))
    ]
    return _Vocabulary(pieces, indicator, *settings)


def fast_wordpiece_tokenize_with_offsets(graph: Any, node: Any) -> RejectionReason:
    """Convert `FastWordpieceTokenizeWithOffsets` of words (words,) to ids (pieces,) and row splits; no mapping."""
    # WordPiece takes the longest piece from the left, again and again. One `Loop` finds the longest piece at every
    # character of every word (`_find_pieces`), another one follows the pieces of each word from its first
    # character on (`_follow_pieces`). A word is known if its last piece ends at the end of the word.
    model = constant_value(graph, node.input[1])
    if model is None or _is_read(graph, [node.output[0], *node.output[3:]]):
        return "its model is not constant, or its pieces or offsets are used"
    vocabulary = _read_vocabulary(model.astype(np.uint8).tobytes())
    if vocabulary is None or "" in vocabulary.pieces:
        return "its model does not support detokenization, or has an empty piece"
    op = StringReplacement(graph, node)
    characters = op.tokenize(op.inputs[0], CHARACTER)
    mask = op.is_nonempty(characters)
    indices = op.true_indices(mask)
    lengths = op.count_true(mask)
    row, column = (
        op.Squeeze(part, [1]) for part in op.multi_output("Split", [True, True], indices, axis=1, num_outputs=2)
    )
    flat = op.GatherND(characters, indices, output_dtype=STRING)
    longest, piece = _find_pieces(op, flat, column, op.Sub(op.Gather(lengths, row), column), vocabulary)
    starts = op.row_splits(lengths)
    is_start, is_known = _follow_pieces(op, longest, starts, lengths)
    is_known = op.And(is_known, _is_within_limit(op, flat, starts, vocabulary.max_bytes))
    # One id for each start of a piece in a known word, and for the first character of an unknown word
    is_in_known_word = op.Gather(is_known, row)
    is_first = op.Equal(column, np.int64(0))
    has_id = op.Or(op.And(is_in_known_word, is_start), op.And(op.Not(is_in_known_word), is_first))
    ids = op.Where(is_in_known_word, piece, np.int64(vocabulary.unknown))
    ends = op.row_splits(op.Cast(has_id, to=INT64))
    op.finish("Compress", ids, has_id, output=1, axis=0)
    return op.finish("Gather", ends, starts, output=2)


def _find_pieces(op: StringBuilder, flat: str, column: str, remaining: str, vocabulary: _Vocabulary) -> list[str]:
    """Return the length of the longest piece at each character, 0 if there is none, and its id."""
    # All tensors are (characters,): the characters of all words, the index of each character in its word, and the
    # number of characters to the end of its word. Iteration n of the `Loop` looks up the n characters from each
    # character on (after the suffix indicator, except at the start of a word), and then appends the next character.
    end = op.dims(flat, 0, 1)
    prefix = op.Where(op.Equal(column, np.int64(0)), EMPTY, np.array(vocabulary.indicator, object))
    start_text = op.concatenate(prefix, flat, 1)
    padded = op.Concat(flat, np.array([""], object), axis=0)
    positions = op.arange(end)
    zeros = op.Expand(np.int64(0), end)

    def step(body: GraphBuilder, index: str, text: str, longest: str, longest_id: str) -> list[str]:
        op = StringBuilder(body.graph)
        length = op.Add(index, np.int64(1))
        piece_id = op.look_up(text, vocabulary.pieces, -1)
        is_piece = op.And(op.GreaterOrEqual(piece_id, np.int64(0)), op.GreaterOrEqual(remaining, length))
        next_character = op.Gather(padded, op.Min(op.Add(positions, length), end), output_dtype=STRING)
        return [
            op.concatenate(text, next_character, 1),
            op.Where(is_piece, length, longest),
            op.Where(is_piece, piece_id, longest_id),
        ]

    return op.for_loop([vocabulary.max_characters], step, *_set_rank_1(op, start_text, zeros, zeros))[1:]


def _follow_pieces(op: StringBuilder, longest: str, starts: str, lengths: str) -> tuple[str, str]:
    """Return masks of the characters at which pieces start, (characters,), and of the known words, (words,)."""
    # `longest` is (characters,), `starts` are the row splits of words, `lengths` is (words,). The `Loop` has a position
    # in each word, which advances by the longest piece there. The position is unchanged if no piece starts there, and
    # at the end of the word, where it writes to an additional element of the mask.
    size = op.dims(longest, 0, 1)
    lengths_of_pieces = op.Concat(longest, [0], axis=0)
    ends = op.Slice(starts, [1], [2**31], [0])
    zeros = op.Expand(np.int64(0), op.Shape(lengths_of_pieces))

    def step(op: GraphBuilder, index: str, position: str, is_start: str) -> list[str]:
        index_or_end = op.Where(op.Less(position, ends), position, size)
        ones = op.Expand(np.int64(1), op.Shape(index_or_end))
        next_position = op.Add(position, op.Gather(lengths_of_pieces, index_or_end))
        return [next_position, op.ScatterElements(is_start, index_or_end, ones, axis=0)]

    state = _set_rank_1(op, op.Slice(starts, [0], [-1], [0]), zeros)
    position, is_start = op.for_loop(op.maximum(lengths), step, *state)
    return op.Cast(op.Slice(is_start, [0], size, [0]), to=BOOL), op.Equal(position, ends)


def _is_within_limit(op: StringBuilder, flat: str, starts: str, max_bytes: int) -> str:
    """Return a mask of the words with at most `max_bytes` bytes, (words,)."""
    ends = op.Gather(op.row_splits(op.encode_utf8(flat)[1]), starts)
    counts = op.Sub(op.Slice(ends, [1], [2**31], [0]), op.Slice(ends, [0], [-1], [0]))
    return op.LessOrEqual(counts, np.int64(max_bytes))


def _set_rank_1(op: StringBuilder, *tensors: str) -> list[str]:
    """Set the rank of 1-D tensors, which tf2onnx cannot infer, and return them."""
    for tensor in tensors:
        op.graph.set_shape(tensor, [-1])
    return [*tensors]


def _is_read(graph: Any, outputs: list[str]) -> bool:
    return any(graph.find_output_consumers(name) or name in graph.outputs for name in outputs)
