"""Build string nodes: tokenize, look up, join.

onnxruntime's `Tokenizer` takes texts apart by a regular expression of RE2, as TensorFlow's operators do, of which it
takes the longest that begins first. Functions in the file put them together (`string_functions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from ..._onnx.traced_model import DOMAIN
from ..graph_builder import Replacement, Value, Writer

INT64, BOOL, STRING = TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
EMPTY = np.array("", object)
SPACES = r" \t\n\v\f\r"  # to TensorFlow, in a class of RE2
CHARACTER, WORD = "(?s:.)", f"[^{SPACES}]+"
STRIPPED = f"[^{SPACES}]((?s:.)*[^{SPACES}])?"


class Strings(Writer):
    """Writes what strings are made of."""

    def tokens(self, text: str, expression: str) -> str:
        """Return what matches in texts of any shape: (texts, most), empty strings behind the last."""
        return self._called("Tokens", [text], [(STRING, 2)], expression=expression)[0]

    def matches(self, strings: str, pattern: str, rank: int = 2) -> str:
        """Return where the whole of a string matches, an array of so many axes."""
        return self._called("Matches", [strings], [(BOOL, rank)], pattern=pattern)[0]

    def bytes_of(self, characters: str) -> Sequence[str]:
        """Return the bytes of characters, (characters,), in a number each, the first lowest, and how many they are."""
        given = self("Unsqueeze", characters, [1], gives=STRING)
        found = self._called("Bytes", [given], [(INT64, 2), (INT64, 2)])
        return [self("Squeeze", each, [1]) for each in found]

    def parts(self, text: str, delimiter: str) -> Sequence[str]:
        """Return what stands between delimiters, (texts, most), and how many those are, none of an empty text."""
        return self._called("Parts", [text], [(STRING, 2), (INT64, 1)], delimiter=delimiter)

    def joined(self, pieces: str) -> str:
        """Return the texts, (texts,), that pieces make: (texts, most)."""
        return self._called("Join", [pieces], [(STRING, 1)])[0]

    def concatenated(self, one: Value, other: Value, rank: int) -> str:
        """Return strings with others behind them, an array of so many axes."""
        return self._called("Concatenated", [one, other], [(STRING, rank)])[0]

    def same(self, one: str, other: str, rank: int) -> str:
        """Return where strings are the same, an array of so many axes."""
        return self._called("Same", [one, other], [(BOOL, rank)])[0]

    def _called(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[tuple[int, int]], **options: Any
    ) -> list[str]:
        node = self.graph.make_node(
            name,
            [self.constant(each) for each in inputs],
            attr=options,
            domain=DOMAIN,
            output_count=len(outputs),
            shapes=[[-1] * rank for _, rank in outputs],
            dtypes=[kind for kind, _ in outputs],
        )
        return [str(each) for each in node.output]

    def looked_up(self, keys: str, numbers: Mapping[Any, int], default: int) -> str:
        """Return the number of each string, or of each number."""
        named = "keys_strings" if isinstance(next(iter(numbers), ""), str) else "keys_int64s"
        return self(
            "LabelEncoder",
            keys,
            gives=INT64,
            domain="ai.onnx.ml",
            values_int64s=[*numbers.values()],
            default_int64=default,
            **{named: [*numbers]},
        )

    def classes(self, strings: str, known: Sequence[str]) -> str:
        """Return where each string stands in a list, or how long the list is."""
        return self.looked_up(strings, {each: place for place, each in enumerate(known)}, len(known))

    def is_one_of(self, strings: str, known: Sequence[str]) -> str:
        """Return where a string is one of a list."""
        return self("Less", self.classes(strings, known), np.int64(len(known)))

    def exchanged(self, strings: str, others: Mapping[str, str]) -> str:
        """Return strings with others in the place of some."""
        places = self.classes(strings, [*others])
        found = self("Gather", np.array([*others.values(), ""], object), places, axis=0)
        return self("Where", self("Less", places, np.int64(len(others))), found, strings)

    def columns(self, array: str) -> str:
        """Return 0, 1, 2 and so on, for each index of the last of two axes."""
        return self.up_to(self.sizes(array, 1, 2))

    def up_to(self, count: str) -> str:
        """Return 0, 1, 2 and so on, as many as a count of shape (1,) tells."""
        return self("Range", np.int64(0), self("Squeeze", count, [0]), np.int64(1))

    def places(self, there: str) -> str:
        """Return where a mask of two axes is true, row by row: (places, 2)."""
        return self("Transpose", self("NonZero", there), perm=[1, 0])

    def count(self, there: str) -> str:
        """Return how often a mask of two axes is true in each row."""
        return self("ReduceSum", self("Cast", there, to=INT64), [1], keepdims=0)

    def largest(self, numbers: str) -> str:
        """Return the largest of some whole numbers, at least 0: (1,)."""
        return self("ReduceMax", self("Concat", [0], numbers, axis=0), [0], keepdims=1)

    def sums(self, counts: str) -> str:
        """Return where rows of so many begin, and where the last ends."""
        return self("Concat", [0], self("CumSum", counts, np.int64(0)), axis=0)


class Text(Strings, Replacement):
    """Writes what stands in the place of a node that makes strings, or reads them."""

    def join(self, pieces: str) -> None:
        """Write the texts that pieces make, in the shape of the first input, as the output."""
        shape = self("Shape", self.inputs[0])
        self.last("Reshape", self.joined(pieces), shape, allowzero=1)
