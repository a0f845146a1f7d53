"""Build string nodes: tokenize, look up, join.

onnxruntime's `Tokenizer` splits texts by a regular expression of RE2, as TensorFlow's operators do, but takes the
longest of the matches that begin first. Functions in the file join strings (`string_functions.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._onnx.traced_model import DOMAIN
from ..graph_builder import GraphBuilder, NodeReplacement, Operand, Refusal

INT64, BOOL, STRING = TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
EMPTY = np.array("", object)
SPACES = r" \t\n\v\f\r"  # to TensorFlow, in a class of RE2
CHARACTER, WORD = "(?s:.)", f"[^{SPACES}]+"
STRIPPED = f"[^{SPACES}]((?s:.)*[^{SPACES}])?"


class StringBuilder(GraphBuilder):
    """Builds nodes on strings."""

    def call(self, name: str, inputs: Sequence[Operand], *outputs: tuple[int, int], **attributes: Any) -> list[str]:
        """Write a call of a function in the file and return its outputs, of these (element type, rank)."""
        options = {
            "output_count": len(outputs),
            "shapes": [[-1] * rank for _, rank in outputs],
            "dtypes": [dtype for dtype, _ in outputs],
        }
        return self._write(name, inputs, {**attributes, "domain": DOMAIN}, **options)

    def tokenize(self, text: str, expression: str) -> str:
        """Return the matches in texts of any shape: (texts, max matches), with empty strings behind the last."""
        return self.call("Tokens", [text], (STRING, 2), expression=expression)[0]

    def is_nonempty(self, tokens: str) -> str:
        """Return a mask of the tokens that are not empty."""
        return self.Not(self.is_in(tokens, [""]))

    def full_match(self, strings: str, pattern: str) -> str:
        """Return a mask, of two axes, of the strings that match as a whole."""
        return self.call("Matches", [strings], (BOOL, 2), pattern=pattern)[0]

    def encode_utf8(self, characters: str) -> Sequence[str]:
        """Return the bytes of characters, (characters,), as one number each, lowest first, and their counts."""
        column = self.Unsqueeze(characters, [1], output_dtype=STRING)
        return [self.Squeeze(output, [1]) for output in self.call("Bytes", [column], (INT64, 2), (INT64, 2))]

    def split(self, text: str, delimiter: str) -> Sequence[str]:
        """Return the parts between delimiters, (texts, max parts), and their counts, 0 for an empty text."""
        return self.call("Parts", [text], (STRING, 2), (INT64, 1), delimiter=delimiter)

    def join(self, pieces: str) -> str:
        """Return the texts, (texts,), that pieces, (texts, max pieces), join to."""
        return self.call("Join", [pieces], (STRING, 1))[0]

    def concatenate(self, one: Operand, other: Operand, rank: int) -> str:
        """Return strings followed by others, with so many axes."""
        return self.call("Concatenated", [one, other], (STRING, rank))[0]

    def equal_strings(self, one: str, other: str, rank: int) -> str:
        """Return a mask, with so many axes, of equal strings."""
        return self.call("Same", [one, other], (BOOL, rank))[0]

    def look_up(self, keys: str, numbers: Mapping[Any, int], default: int) -> str:
        """Return the number of each string, or of each integer."""
        attribute = "keys_strings" if isinstance(next(iter(numbers), ""), str) else "keys_int64s"
        attributes = {"values_int64s": [*numbers.values()], "default_int64": default, attribute: [*numbers]}
        return self.LabelEncoder(keys, output_dtype=INT64, domain="ai.onnx.ml", **attributes)

    def find_indices(self, strings: str, known: Sequence[str]) -> str:
        """Return the index of each string in a list, or the length of the list."""
        return self.look_up(strings, {string: index for index, string in enumerate(known)}, len(known))

    def is_in(self, strings: str, known: Sequence[str]) -> str:
        """Return a mask of the strings that are in a list."""
        return self.Less(self.find_indices(strings, known), np.int64(len(known)))

    def replace(self, strings: str, others: Mapping[str, str]) -> str:
        """Return strings of which some are replaced by others."""
        indices = self.find_indices(strings, [*others])
        replacements = self.Gather(np.array([*others.values(), ""], object), indices, axis=0)
        return self.Where(self.Less(indices, np.int64(len(others))), replacements, strings)

    def column_indices(self, array: str) -> str:
        """Return 0, 1, 2 and so on, for each index of the last of two axes."""
        return self.arange(self.dims(array, 1, 2))

    def arange(self, count_true: str) -> str:
        """Return the integers from 0 to one less than a 1-D tensor of one number, with a rank that tf2onnx infers."""
        return self.Range(np.int64(0), self.Squeeze(count_true, [0]), np.int64(1))

    def true_indices(self, mask: str) -> str:
        """Return the indices where a mask of two axes is true, row by row: (true elements, 2)."""
        return self.Transpose(self.NonZero(mask), perm=[1, 0])

    def count(self, mask: str) -> str:
        """Return the number of true elements in each row of a mask."""
        return self.ReduceSum(self.Cast(mask, to=INT64), [1], keepdims=0)

    def maximum(self, numbers: str) -> str:
        """Return the largest of integers, at least 0: (1,)."""
        return self.ReduceMax(self.Concat([0], numbers, axis=0), [0], keepdims=1)

    def row_splits(self, counts: str) -> str:
        """Return the start of each row of so many elements, and the end of the last."""
        return self.Concat([0], self.CumSum(counts, np.int64(0)), axis=0)


class StringReplacement(StringBuilder, NodeReplacement):
    """Replaces a node by nodes on strings."""

    def finish_joined(self, pieces: str) -> Refusal:
        """Write the texts that pieces join to, in the shape of the first input, as the output; return None."""
        return self.finish("Reshape", self.join(pieces), self.Shape(self.inputs[0]), allowzero=1)
