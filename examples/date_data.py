"""Dates as people write them: Babel's locale data, written out and noised, with the ISO date each stands for.

A date is first written exactly as Babel would write it, but piece by piece, so that `date_noise` knows which piece is
the month's name. Days run from 1970-01-01 to 2069-12-31, so a year of two digits has one meaning. The days, not the
rows, are divided into training and held-out days: no held-out day is ever seen in training, in any language or style.
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
from date_noise import DIGIT_ZEROS, TYPO_SHARE, add_noise, month_names

# 37 languages, 38 locales: English is there twice because its two orders of day and month differ.
LOCALES = (
    *("ar_EG", "bg", "bn", "cs", "da", "de", "el", "en_GB", "en_US", "es", "fa", "fi", "fr", "he", "hi", "hr", "hu"),
    *("hy", "id", "it", "ja", "ka", "ko", "lt", "lv", "nl", "pl", "pt_BR", "ro", "ru", "sv", "sw", "ta", "th", "tr"),
    *("uk", "vi", "zh_CN"),
)
Style = Literal["short", "medium", "long", "full"]
STYLES: tuple[Style, ...] = get_args(Style)
FIRST_DAY, LAST_DAY = datetime.date(1970, 1, 1), datetime.date(2069, 12, 31)
ISO_LENGTH, ISO_CHARACTERS = 10, "0123456789-"
START = len(ISO_CHARACTERS)  # what a decoder is given as the character before the first
PADDING, UNKNOWN = 0, 1  # character ids; the vocabulary starts at 2

# What a field says depends on this much of the date only, so each field is written by Babel once for each such key.
_KEYS: dict[str, Callable[[datetime.date], datetime.date]] = {
    "d": lambda day: datetime.date(2000, 1, day.day),
    "M": lambda day: datetime.date(2000, day.month, 1),
    "y": lambda day: datetime.date(day.year, 1, 1),
    "E": lambda day: datetime.date(2001, 1, 1 + day.weekday()),  # 2001-01-01 was a Monday
    "G": lambda day: datetime.date(2000, 1, 1),
}
_KEYS |= {"L": _KEYS["M"], "c": _KEYS["E"]}


@dataclass(frozen=True, slots=True)
class Row:
    """One written date: its text, where it comes from and the ISO date it stands for."""

    text: str
    locale: str
    style: Style
    iso: str


@functools.cache
def date_fields(locale: str, style: Style) -> tuple[tuple[str, str], ...]:
    """The pattern of one locale and style as (kind, value) pairs: ("chars", literal) or ("MMMM", "")."""
    tokens = tokenize_pattern(get_date_format(style, locale=locale).pattern)
    return tuple(("chars", value) if isinstance(value, str) else (value[0] * value[1], "") for _, value in tokens)


@functools.cache
def _field_text(locale: str, field: str, key: datetime.date) -> str:
    return str(DateTimeFormat(key, locale=locale)[field])


def write_date(day: datetime.date, locale: str, style: Style) -> list[tuple[str, str]]:
    """The date as (field, text) pieces; their texts joined are `babel.dates.format_date(day, style, locale)`."""
    return [
        (field, literal if field == "chars" else _field_text(locale, field, _KEYS[field[0]](day)))
        for field, literal in date_fields(locale, style)
    ]


def split_days(seed: int) -> tuple[list[datetime.date], list[datetime.date]]:
    """All days of the century, shuffled and cut in two: (training days, held-out days)."""
    days = [FIRST_DAY + datetime.timedelta(n) for n in range((LAST_DAY - FIRST_DAY).days + 1)]
    random.Random(seed).shuffle(days)
    held_out = len(days) // 10
    return days[held_out:], days[:held_out]


def make_rows(
    days: list[datetime.date], per_style: int, *, seed: int, noise: float, typo_share: float = TYPO_SHARE
) -> list[Row]:
    """`per_style` rows of random days for every locale and style; a share `noise` of them as people type them.

    The seed alone fixes the days, so that the rows with and without noise are the same dates.
    """
    pick, rng = random.Random(seed), random.Random(f"noise {seed}")
    rows = []
    for locale, style in itertools.product(LOCALES, STYLES):
        for _ in range(per_style):
            day = pick.choice(days)
            pieces = write_date(day, locale, style)
            noisy = rng.random() < noise
            text = add_noise(pieces, locale, rng, typo_share) if noisy else "".join(text for _, text in pieces)
            rows.append(Row(text, locale, style, day.isoformat()))
    return rows


def _locale_texts(locale: str) -> Iterator[str]:
    """Every text the locale can put in a date."""
    for style in STYLES:
        for field, literal in date_fields(locale, style):
            yield literal
            if field[0] in "MLEcG":
                days = (datetime.date(2001, month, day) for month in range(1, 13) for day in range(1, 8))
                yield from (_field_text(locale, field, _KEYS[field[0]](day)) for day in days)
    yield from (name for names in month_names(locale) for name in names)


def make_vocabulary() -> str:
    """All characters of the locales' dates, in any case, in order; the character at `n` has the id `n + 2`."""
    characters = {chr(zero + n) for zero in (ord("0"), *DIGIT_ZEROS.values()) for n in range(10)} | {" "}
    for locale in LOCALES:
        for text in _locale_texts(locale):
            characters.update(text, text.lower(), text.upper(), text.title())
    return "".join(sorted(c for c in characters if unicodedata.category(c) != "Cn"))


def encode(texts: list[str], locales: list[str], vocabulary: str) -> dict[str, np.ndarray]:
    """The model's inputs: padded character ids (B, T), locale ids (B,) and lengths (B,), all int32."""
    ids = {character: n for n, character in enumerate(vocabulary, start=2)}
    characters = np.full((len(texts), max(map(len, texts))), PADDING, "int32")
    for row, text in zip(characters, texts, strict=True):
        row[: len(text)] = [ids.get(character, UNKNOWN) for character in text]
    return {
        "characters": characters,
        "locale": np.array([LOCALES.index(locale) for locale in locales], "int32"),
        "valid_lens": np.array([len(text) for text in texts], "int32"),
    }


def encode_rows(rows: list[Row], vocabulary: str) -> dict[str, np.ndarray]:
    """`encode` for rows."""
    return encode([row.text for row in rows], [row.locale for row in rows], vocabulary)


def encode_iso(rows: list[Row]) -> np.ndarray:
    """The answers as class ids, int32 (B, 10)."""
    return np.array([[ISO_CHARACTERS.index(character) for character in row.iso] for row in rows], "int32")


def characters_before(answers: np.ndarray) -> np.ndarray:
    """For each character of answers (B, 10) the one before it, which is `START` before the first."""
    return np.concatenate([np.full_like(answers[:, :1], START), answers[:, :-1]], axis=1)


def decode_iso(ids: np.ndarray) -> list[str]:
    """The strings of class ids (B, 10)."""
    return ["".join(ISO_CHARACTERS[n] for n in row) for row in ids]
