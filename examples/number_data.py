"""Numbers spelled out in sixteen languages, as num2words writes them, and how they become tokens."""

import random
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from num2words import num2words

# Five scripts, and each language with letters of its own. Each spells two different numbers below 10,000 differently.
LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "ja", "ko", "nl", "pl", "ro", "ru", "th", "tr")
DIRECTIONS = ("digits to words", "words to digits")
NUMBERS = range(10_000)

END, EQUALS = 0, 1  # tokens: END closes an answer and pads, EQUALS is what an answer begins after
FIRST_LANGUAGE, FIRST_CHARACTER = 2, 2 + len(LANGUAGES)

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """A prompt such as `<de>47=` and its answer, `siebenundvierzig`."""

    language: str
    direction: str
    question: str
    answer: str


@cache
def spell(number: int, language: str) -> str:
    """The words of a number, with one blank between two and none at either end, which not all of num2words keep to."""
    return unicodedata.normalize("NFC", " ".join(num2words(number, lang=language).split()))


@cache
def make_vocabulary() -> str:
    """The characters of all words, and the digits."""
    # Every seventh number has the tens, the hundreds and the thousands, and all that stands between them.
    some = [*range(100), *NUMBERS[::7]]
    words = {character for language in LANGUAGES for number in some for character in spell(number, language)}
    return "".join(sorted(words | set("0123456789")))


def vocabulary_size() -> int:
    """The number of tokens."""
    return FIRST_CHARACTER + len(make_vocabulary())


def split_numbers(seed: int, held_out: int = 1000) -> tuple[list[int], list[int]]:
    """Numbers to train on, and those that are held out of it in every language and direction."""
    numbers = random.Random(seed).sample(NUMBERS, len(NUMBERS))
    return sorted(numbers[held_out:]), sorted(numbers[:held_out])


def make_rows(numbers: Sequence[int]) -> list[Row]:
    """Each number in each language, in both directions."""
    pairs = [(language, str(number), spell(number, language)) for language in LANGUAGES for number in numbers]
    written, read = DIRECTIONS
    return [Row(language, written, digits, words) for language, digits, words in pairs] + [
        Row(language, read, words, digits) for language, digits, words in pairs
    ]


def tokens_of(text: str) -> list[int]:
    """The tokens of characters of the vocabulary."""
    return [_tokens()[character] for character in text]


def encode_prompts(rows: Sequence[Row]) -> Arrays:
    """What the decoding model reads: the language and the question (B, T), and how many tokens they are (B,)."""
    prompts = [_prompt(row) for row in rows]
    lengths = np.array([len(tokens) for tokens in prompts], "int32")
    return {"prompt": _padded(prompts), "valid_lens": lengths}


def encode_answers(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is trained on: the rows with their right answers, as `join` has them."""
    return join(rows, [[*tokens_of(row.answer), END] for row in rows])


def join(rows: Sequence[Row], answers: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prompts and answers as one: the tokens, what comes after each, and 1 where that is of the answer, (B, T) each."""
    prompts = [[*_prompt(row), EQUALS] for row in rows]
    pairs = list(zip(prompts, answers, strict=True))
    tokens = _padded([prompt + answer[:-1] for prompt, answer in pairs])
    # Nobody asks for the tokens of a prompt, but they come after each other as well.
    wanted = _padded([prompt[1:] + answer for prompt, answer in pairs])
    counted = _padded([[0] * (len(prompt) - 1) + [1] * len(answer) for prompt, answer in pairs])
    return tokens, wanted, counted.astype("float32")


def decode_answers(tokens: np.ndarray, lengths: np.ndarray) -> list[str]:
    """The texts of answers (B, L) of so many tokens (B,); what is no character is written as `?`."""
    rows = (row[:length] for row, length in zip(tokens, lengths, strict=True))
    return ["".join(_character(token) for token in row if token != END) for row in rows]


def _character(token: int) -> str:
    return make_vocabulary()[token - FIRST_CHARACTER] if token >= FIRST_CHARACTER else "?"


@cache
def _tokens() -> dict[str, int]:
    return {character: FIRST_CHARACTER + n for n, character in enumerate(make_vocabulary())}


def _prompt(row: Row) -> list[int]:
    return [FIRST_LANGUAGE + LANGUAGES.index(row.language), *tokens_of(row.question)]


def _padded(rows: Sequence[list[int]]) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows))), END, "int32")
    for place, tokens in zip(padded, rows, strict=True):
        place[: len(tokens)] = tokens
    return padded
