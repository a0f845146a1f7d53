"""Draw random strings: vocabulary words, sentences and Unicode edge cases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .random_inputs import Shape

# What libraries of text disagree on: nothing, other kinds of space, case and marks beyond ASCII, signs of two parts.
EDGE_CASE_TEXTS = (
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
MAX_SENTENCE_WORDS = 8  # words of a sentence
MAX_TEXTS = 1000  # strings that a case tries, one a row


@dataclass
class TextGenerator:
    """Draws strings: no word comes again before all have come."""

    vocabulary: Sequence[str]  # words of the vocabularies that look them up
    is_split: bool  # whether strings are split before the lookup
    is_closed: bool = False  # whether other words are refused
    _remaining: list[str] = field(default_factory=list)

    @property
    def case_texts(self) -> list[str]:
        """What is to be tried of it: all words, as far as a case has room, and what is odd."""
        if self.is_closed:
            return list(self.vocabulary[:MAX_TEXTS])
        # without a known word a text may be NaN in Keras, which is no comparison
        others = [f"{text} {self.vocabulary[0]}" for text in EDGE_CASE_TEXTS if self.vocabulary and self.is_split]
        others += [change(word) for word in self.vocabulary[:20] for change in (str.upper, str.title, "{} ".format)]
        sentences = [
            " ".join(self.vocabulary[at : at + MAX_SENTENCE_WORDS])
            for at in range(0, len(self.vocabulary), MAX_SENTENCE_WORDS)
        ]
        words = sentences if self.is_split else self.vocabulary
        return [*EDGE_CASE_TEXTS, *others, *words][:MAX_TEXTS]

    def draw(self, shape: Shape, rng: np.random.Generator) -> np.ndarray:
        """Return strings of any shape."""
        make = self._draw_sentence if self.is_split else self._draw_word
        texts = np.empty(math.prod(shape), object)
        texts[:] = [make(rng) for _ in range(texts.size)]
        return texts.reshape(shape)

    def _draw_word(self, rng: np.random.Generator) -> str:
        if not self._remaining:
            others = () if self.is_closed and self.vocabulary else EDGE_CASE_TEXTS[: max(4, len(self.vocabulary) // 4)]
            self._remaining = [str(word) for word in rng.permutation(np.array([*self.vocabulary, *others], object))]
        return self._remaining.pop()

    def _draw_sentence(self, rng: np.random.Generator) -> str:
        text, count = "", int(rng.integers(1, MAX_SENTENCE_WORDS + 1))
        known = int(rng.integers(count)) if self.vocabulary else -1  # the mean over a text without a known word is NaN
        for index in range(count):
            word = self.vocabulary[int(rng.integers(len(self.vocabulary)))] if index == known else self._draw_word(rng)
            change = int(rng.integers(0, 8))
            if index != known:
                word = word.upper() if change == 0 else word.capitalize() if change == 1 else word
            text += word + SEPARATORS[int(rng.integers(0, len(SEPARATORS)))]
        return text
