"""Builders of string nodes: tokenize, look up, join.

onnxruntime's `Tokenizer` finds the matches of an RE2 expression in texts, as TensorFlow's operators do, but prefers the
longest match to the first alternative. Other operators are ONNX functions in the file (`string_functions.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._onnx.traced_model import FUNCTION_DOMAIN
from ..graph_builder import GraphBuilder, NodeReplacement, Operand, RejectionReason

INT64, BOOL, STRING = TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
EMPTY = np.array("", object)
# TensorFlow's white space, in an RE2 class: `\s` of RE2 lacks `\v`
SPACES = r" \t\n\v\f\r"
CHARACTER, WORD = "(?s:.)", f"[^{SPACES}]+"
STRIPPED = f"[^{SPACES}]((?s:.)*[^{SPACES}])?"


class StringBuilder(GraphBuilder):
    """Builds nodes that read or compute strings; masks and indices of texts are (texts, max tokens)."""

    def call(self, name: str, inputs: Sequence[Operand], *outputs: tuple[int, int], **attributes: Any) -> list[str]:
        """Write a call of an ONNX function and return its outputs; `outputs` are pairs (element type, rank)."""
        options = {
            "output_count": len(outputs),
            "shapes": [[-1] * rank for _, rank in outputs],
            "dtypes": [dtype for dtype, _ in outputs],
        }
        return self._write(name, inputs, {**attributes, "domain": FUNCTION_DOMAIN}, **options)

    def tokenize(self, text: str, expression: str) -> str:
        """Return the matches in texts of any shape: (texts, max matches), padded with empty strings."""
        return self.call("Tokens", [text], (STRING, 2), expression=expression)[0]

    def is_nonempty(self, tokens: str) -> str:
        """Return a mask of the tokens that are not empty."""
        return self.Not(self.is_in(tokens, [""]))

    def full_match(self, strings: str, pattern: str) -> str:
        """Return a mask, of rank 2, of the strings that match a pattern from start to end."""
        return self.call("Matches", [strings], (BOOL, 2), pattern=pattern)[0]

    def encode_utf8(self, characters: str) -> Sequence[str]:
        """Return the UTF-8 bytes of characters (characters,), one little-endian number each, and their counts."""
        column = self.Unsqueeze(characters, [1], output_dtype=STRING)
        return [self.Squeeze(output, [1]) for output in self.call("Bytes", [column], (INT64, 2), (INT64, 2))]

    def split(self, text: str, delimiter: str) -> Sequence[str]:
        """Return the parts between delimiters, (texts, max parts), and their counts, (texts,), 0 for an empty text."""
        return self.call("Parts", [text], (STRING, 2), (INT64, 1), delimiter=delimiter)

    def join(self, pieces: str) -> str:
        """Join pieces (texts, max pieces) to texts (texts,)."""
        return self.call("Join", [pieces], (STRING, 1))[0]

    def concatenate(self, first: Operand, second: Operand, rank: int) -> str:
        """Concatenate strings elementwise; their shapes broadcast to one of this rank."""
        return self.call("Concatenated", [first, second], (STRING, rank))[0]

    def equal_strings(self, first: str, second: str, rank: int) -> str:
        """Return a mask of equal strings, whose shapes broadcast to one of this rank."""
        return self.call("Same", [first, second], (BOOL, rank))[0]

    def look_up(self, keys: str, numbers: Mapping[Any, int], default: int) -> str:
        """Map strings or int64 keys of any shape to int64 numbers by `LabelEncoder`."""
        attribute = "keys_strings" if isinstance(next(iter(numbers), ""), str) else "keys_int64s"
        attributes = {"values_int64s": [*numbers.values()], "default_int64": default, attribute: [*numbers]}
        return self.LabelEncoder(keys, output_dtype=INT64, domain="ai.onnx.ml", **attributes)

    def find_indices(self, strings: str, vocabulary: Sequence[str]) -> str:
        """Return the index of each string in a vocabulary; the size of the vocabulary for unknown strings."""
        return self.look_up(strings, {string: index for index, string in enumerate(vocabulary)}, len(vocabulary))

    def is_in(self, strings: str, vocabulary: Sequence[str]) -> str:
        """Return a mask of the strings that are in a vocabulary."""
        return self.Less(self.find_indices(strings, vocabulary), np.int64(len(vocabulary)))

    def replace(self, strings: str, replacements: Mapping[str, str]) -> str:
        """Return strings, of any shape, with the keys of a mapping replaced by its values."""
        indices = self.find_indices(strings, [*replacements])
        values = self.Gather(np.array([*replacements.values(), ""], object), indices, axis=0)
        return self.Where(self.Less(indices, np.int64(len(replacements))), values, strings)

    def column_indices(self, array: str) -> str:
        """Return 0 to columns - 1, (columns,), for an array (rows, columns)."""
        return self.arange(self.dims(array, 1, 2))

    def arange(self, count: str) -> str:
        """Return 0 to count - 1, (count,); `count` has the shape (1,)."""
        # With the axis of `Squeeze`, tf2onnx infers the rank of the result
        return self.Range(np.int64(0), self.Squeeze(count, [0]), np.int64(1))

    def true_indices(self, mask: str) -> str:
        """Return the indices of the true elements of a mask of rank 2 in row-major order: (true elements, 2)."""
        return self.Transpose(self.NonZero(mask), perm=[1, 0])

    def count_true(self, mask: str) -> str:
        """Return the number of true elements in each row of a mask (rows, columns): (rows,)."""
        return self.ReduceSum(self.Cast(mask, to=INT64), [1], keepdims=0)

    def maximum(self, numbers: str) -> str:
        """Return the maximum of int64 numbers (n,), at least 0: (1,)."""
        return self.ReduceMax(self.Concat([0], numbers, axis=0), [0], keepdims=1)

    def row_splits(self, counts: str) -> str:
        """Return the row splits of `tf.RaggedTensor`, (rows + 1,), from the number of elements of each row, (rows,)."""
        return self.Concat([0], self.CumSum(counts, np.int64(0)), axis=0)


class StringReplacement(StringBuilder, NodeReplacement):
    """Replaces a node by nodes that read or compute strings."""

    def finish_joined(self, pieces: str) -> RejectionReason:
        """Join pieces (texts, max pieces), and write the texts in the shape of the first input; return None."""
        return self.finish("Reshape", self.join(pieces), self.Shape(self.inputs[0]), allowzero=1)
