"""Random strings: vocabulary words, sentences and Unicode edge cases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .random_inputs import Shape

# Texts on which libraries disagree: empty, various whitespace, case and accents beyond ASCII, combined characters.
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
MAX_SENTENCE_WORDS = 8
MAX_TEXTS = 1000  # in the case "every text", one per row


@dataclass
class TextGenerator:
    """Sampler of strings, from words that are drawn without replacement."""

    vocabulary: Sequence[str]  # words of all layers that look up the strings
    is_split: bool  # strings are sentences, which are split before the lookup
    is_closed: bool = False  # the layers raise for other words
    _remaining: list[str] = field(default_factory=list)

    @property
    def case_texts(self) -> list[str]:
        """Return the first MAX_TEXTS of: edge cases, variants of words, words or sentences of the vocabulary."""
        if self.is_closed:
            return list(self.vocabulary[:MAX_TEXTS])
        # Keras may return NaN for a text without a word of the vocabulary, and NaN cannot be compared.
        variants = [f"{text} {self.vocabulary[0]}" for text in EDGE_CASE_TEXTS if self.vocabulary and self.is_split]
        variants += [change(word) for word in self.vocabulary[:20] for change in (str.upper, str.title, "{} ".format)]
        starts = range(0, len(self.vocabulary), MAX_SENTENCE_WORDS)
        sentences = [" ".join(self.vocabulary[start : start + MAX_SENTENCE_WORDS]) for start in starts]
        words = sentences if self.is_split else self.vocabulary
        return [*EDGE_CASE_TEXTS, *variants, *words][:MAX_TEXTS]

    def draw(self, shape: Shape, rng: np.random.Generator) -> np.ndarray:
        """Return an object array of strings, of any shape."""
        draw_text = self._draw_sentence if self.is_split else self._draw_word
        texts = np.empty(math.prod(shape), object)
        texts[:] = [draw_text(rng) for _ in range(texts.size)]
        return texts.reshape(shape)

    def _draw_word(self, rng: np.random.Generator) -> str:
        if not self._remaining:
            texts = () if self.is_closed and self.vocabulary else EDGE_CASE_TEXTS[: max(4, len(self.vocabulary) // 4)]
            self._remaining = [str(word) for word in rng.permutation(np.array([*self.vocabulary, *texts], object))]
        return self._remaining.pop()

    def _draw_sentence(self, rng: np.random.Generator) -> str:
        text, vocabulary = "", self.vocabulary
        count = int(rng.integers(1, MAX_SENTENCE_WORDS + 1))
        # One word is of the vocabulary and unchanged: the mean over a text without such a word is NaN.
        unchanged_index = int(rng.integers(count)) if vocabulary else -1
        for index in range(count):
            is_unchanged = index == unchanged_index
            word = vocabulary[int(rng.integers(len(vocabulary)))] if is_unchanged else self._draw_word(rng)
            change = int(rng.integers(0, 8))
            if not is_unchanged:
                word = word.upper() if change == 0 else word.capitalize() if change == 1 else word
            text += word + SEPARATORS[int(rng.integers(0, len(SEPARATORS)))]
        return text
