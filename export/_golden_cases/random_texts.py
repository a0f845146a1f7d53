"""Draw random strings: vocabulary words, sentences and Unicode edge cases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .random_inputs import Shape

# What libraries of text disagree on: nothing, other kinds of space, case and marks beyond ASCII, signs of two parts.
ODD = (
    "",
    " ",
    "unheard-of",
    "WORD word Word",
    "  two  spaces  ",
    "tab\there\nand\rthere\x0bor\x0cthere",
    "Don't, won't; 3.14 (x)! \"quoted\" [UNK] <br />a&b/c\\d^e_f`g{h|i}~",
    "ÄÖÜ Straße ẞ",
    "İstanbul \u0131Iiİ ǅ Ω",
    "café cafe\u0301 ﬁ",
    "Ёж ёж ЖУК",
    "ΣΊΣΥΦΟΣ σίσυφος",
    "שלום עולם",
    "مرحبا بالعالم",
    "你好,世界。東京",
    "नमस्ते दुनिया",
    "สวัสดี",
    "👩\u200d👩\u200d👧 🙂🏽",
    "no\u00a0break\u3000wide\u2003em\u2028line\u0085next\u200bzero",
    "\ufeffmark \u0130\u0307",
    "0 -1 1e5 007 ١٢٣",
    "x" * 300,
)
SEPARATORS = (*[" "] * 6, "  ", "\t", "\n", ", ", ". ", "-")
LONGEST = 8  # words of a sentence
MOST = 1000  # strings that a case tries, one a row


@dataclass
class Words:
    """Draws strings: no word comes again before all have come."""

    known: Sequence[str]  # words of the vocabularies that look them up
    in_sentences: bool  # whether strings are split before the lookup
    is_closed: bool = False  # whether other words are refused
    _left: list[str] = field(default_factory=list)

    @property
    def every(self) -> list[str]:
        """What is to be tried of it: all words, as far as a case has room, and what is odd."""
        if self.is_closed:
            return list(self.known[:MOST])
        # without a known word a text may be NaN in Keras, which is no comparison
        others = [f"{text} {self.known[0]}" for text in ODD if self.known and self.in_sentences]
        others += [change(word) for word in self.known[:20] for change in (str.upper, str.title, "{} ".format)]
        sentences = [" ".join(self.known[at : at + LONGEST]) for at in range(0, len(self.known), LONGEST)]
        words = sentences if self.in_sentences else self.known
        return [*ODD, *others, *words][:MOST]

    def draw(self, shape: Shape, rng: np.random.Generator) -> np.ndarray:
        """Return strings of any shape."""
        make = self._sentence if self.in_sentences else self._word
        texts = np.empty(math.prod(shape), object)
        texts[:] = [make(rng) for _ in range(texts.size)]
        return texts.reshape(shape)

    def _word(self, rng: np.random.Generator) -> str:
        if not self._left:
            others = () if self.is_closed and self.known else ODD[: max(4, len(self.known) // 4)]
            self._left = [str(word) for word in rng.permutation(np.array([*self.known, *others], object))]
        return self._left.pop()

    def _sentence(self, rng: np.random.Generator) -> str:
        text, count = "", int(rng.integers(1, LONGEST + 1))
        known = int(rng.integers(count)) if self.known else -1  # the mean over a text without a known word is NaN
        for index in range(count):
            word = self.known[int(rng.integers(len(self.known)))] if index == known else self._word(rng)
            change = int(rng.integers(0, 8))
            if index != known:
                word = word.upper() if change == 0 else word.capitalize() if change == 1 else word
            text += word + SEPARATORS[int(rng.integers(0, len(SEPARATORS)))]
        return text
