"""Dates as people write them, from Babel's locale data with added noise, and their ISO dates.

A date is written exactly as by Babel, but in pieces, so that `date_noise` can identify the name of the month. Days
range from 1970-01-01 to 2069-12-31, so that a year of two digits is unambiguous. The days, not the rows, are split into
training and held-out days: no held-out day occurs in training, in any language or style.
"""

import datetime
import functools
import itertools
import random
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from babel.dates import DateTimeFormat, get_date_format, tokenize_pattern
from date_noise import DIGIT_ZEROS, TYPO_SHARE, add_noise, get_month_names

# 37 languages, 38 locales: English occurs twice, because the order of day and month differs.
LOCALES = (
    *("ar_EG", "bg", "bn", "cs", "da", "de", "el", "en_GB", "en_US", "es", "fa", "fi", "fr", "he", "hi", "hr", "hu"),
    *("hy", "id", "it", "ja", "ka", "ko", "lt", "lv", "nl", "pl", "pt_BR", "ro", "ru", "sv", "sw", "ta", "th", "tr"),
    *("uk", "vi", "zh_CN"),
)
Style = Literal["short", "medium", "long", "full"]
STYLES: tuple[Style, ...] = get_args(Style)
FIRST_DAY, LAST_DAY = datetime.date(1970, 1, 1), datetime.date(2069, 12, 31)
ISO_LENGTH, ISO_CHARACTERS = 10, "0123456789-"
START = len(ISO_CHARACTERS)  # start token of a decoder
PADDING, UNKNOWN = 0, 1  # character ids; the vocabulary starts at 2

# The text of a field depends only on one part of the date. The cache key has this part; its other parts are constants.
_CACHE_KEYS: dict[str, Callable[[datetime.date], datetime.date]] = {
    "d": lambda day: datetime.date(2000, 1, day.day),
    "M": lambda day: datetime.date(2000, day.month, 1),
    "y": lambda day: datetime.date(day.year, 1, 1),
    "E": lambda day: datetime.date(2001, 1, 1 + day.weekday()),  # 2001-01-01 was a Monday
    "G": lambda day: datetime.date(2000, 1, 1),
}
_CACHE_KEYS |= {"L": _CACHE_KEYS["M"], "c": _CACHE_KEYS["E"]}


@dataclass(frozen=True, slots=True)
class Row:
    """Date as text, with its locale, its style and the ISO date."""

    text: str
    locale: str
    style: Style
    iso: str


@functools.cache
def parse_date_pattern(locale: str, style: Style) -> tuple[tuple[str, str], ...]:
    """Return the date pattern of a locale and style as (field, literal) pairs: ("chars", literal) or ("MMMM", "")."""
    tokens = tokenize_pattern(get_date_format(style, locale=locale).pattern)
    return tuple(("chars", value) if isinstance(value, str) else (value[0] * value[1], "") for _, value in tokens)


@functools.cache
def _write_field(locale: str, field: str, key: datetime.date) -> str:
    return str(DateTimeFormat(key, locale=locale)[field])


def write_date(day: datetime.date, locale: str, style: Style) -> list[tuple[str, str]]:
    """Return the (field, text) pieces of a date; the joined texts are `babel.dates.format_date(day, style, locale)`."""
    return [
        (field, literal if field == "chars" else _write_field(locale, field, _CACHE_KEYS[field[0]](day)))
        for field, literal in parse_date_pattern(locale, style)
    ]


def split_days(seed: int) -> tuple[list[datetime.date], list[datetime.date]]:
    """Shuffle all days of the century, and split them into training days and held-out days."""
    days = [FIRST_DAY + datetime.timedelta(number) for number in range((LAST_DAY - FIRST_DAY).days + 1)]
    random.Random(seed).shuffle(days)
    num_held_out = len(days) // 10
    return days[num_held_out:], days[:num_held_out]


def make_rows(
    days: list[datetime.date], per_style: int, *, seed: int, noise: float, typo_share: float = TYPO_SHARE
) -> list[Row]:
    """Return `per_style` rows of random days for every locale and style, a share `noise` of them with noise.

    The days depend only on the seed, so that rows with and without noise are the same dates.
    """
    day_rng, noise_rng = random.Random(seed), random.Random(f"noise {seed}")
    rows = []
    for locale, style in itertools.product(LOCALES, STYLES):
        for _ in range(per_style):
            day = day_rng.choice(days)
            pieces = write_date(day, locale, style)
            is_noisy = noise_rng.random() < noise
            text = "".join(text for _, text in pieces)
            if is_noisy:
                text = add_noise(pieces, locale, noise_rng, typo_share)
            rows.append(Row(text, locale, style, day.isoformat()))
    return rows


def _list_texts(locale: str) -> Iterator[str]:
    """Yield all texts that can occur in a date of the locale."""
    for style in STYLES:
        for field, literal in parse_date_pattern(locale, style):
            yield literal
            if field[0] in "MLEcG":
                days = (datetime.date(2001, month, day) for month in range(1, 13) for day in range(1, 8))
                yield from (_write_field(locale, field, _CACHE_KEYS[field[0]](day)) for day in days)
    yield from (name for names in get_month_names(locale) for name in names)


def make_vocabulary() -> str:
    """Return the sorted characters of the dates of all locales, in lower, upper and title case; index 0 has id 2."""
    characters = {chr(zero + digit) for zero in (ord("0"), *DIGIT_ZEROS.values()) for digit in range(10)} | {" "}
    for locale in LOCALES:
        for text in _list_texts(locale):
            characters.update(text, text.lower(), text.upper(), text.title())
    return "".join(sorted(character for character in characters if unicodedata.category(character) != "Cn"))


def encode(texts: list[str], locales: list[str], vocabulary: str) -> dict[str, np.ndarray]:
    """Return the model's inputs: padded character ids (B, T), locale ids (B,) and lengths (B,), all int32."""
    ids = {character: index for index, character in enumerate(vocabulary, start=2)}
    characters = np.full((len(texts), max(map(len, texts))), PADDING, "int32")
    for row, text in zip(characters, texts, strict=True):
        row[: len(text)] = [ids.get(character, UNKNOWN) for character in text]
    return {
        "characters": characters,
        "locale": np.array([LOCALES.index(locale) for locale in locales], "int32"),
        "valid_lens": np.array([len(text) for text in texts], "int32"),
    }


def encode_rows(rows: list[Row], vocabulary: str) -> dict[str, np.ndarray]:
    """Return the model's inputs for rows, as `encode` does."""
    return encode([row.text for row in rows], [row.locale for row in rows], vocabulary)


def encode_iso(rows: list[Row]) -> np.ndarray:
    """Return the ISO dates as class ids, int32 (B, 10)."""
    return np.array([[ISO_CHARACTERS.index(character) for character in row.iso] for row in rows], "int32")


def shift_characters(answers: np.ndarray) -> np.ndarray:
    """Return the previous character of each character of answers (B, 10); `START` for the first."""
    return np.concatenate([np.full_like(answers[:, :1], START), answers[:, :-1]], axis=1)


def decode_iso(ids: np.ndarray) -> list[str]:
    """Return the strings of class ids (B, 10)."""
    return ["".join(ISO_CHARACTERS[index] for index in row) for row in ids]
