"""What people do to a date when they type it, such that it still has one reading in its locale.

The rules:

- Digits: where the locale's own digits are not 0 to 9, half of the dates use the locale's own.
- Direction marks and joiners are left out and every kind of space is the plain one, as on a keyboard.
- A typo in a month's name in one of ten: two letters swapped, one letter dropped, doubled or replaced. The result is
  nearer to its own month than to any other month of the locale, short and long names alike ("Ju" never appears).
  Months written with digits ("6月", "tháng 6") have no typos.
- Spaces and punctuation: 15% are missing, 10% are doubled. Digits that would touch are kept apart by a space
  ("1/11/2020" may become "1 11/2020", never "111/2020").
- Case: two dates in five are written in lower, upper or title case.
"""

import functools
import random
import unicodedata

from babel import Locale

TYPO_SHARE, CASE_SHARE, DIGITS_SHARE = 0.1, 0.4, 0.5
MISSING_SHARE, DOUBLED_SHARE = 0.15, 0.1  # of the spaces and punctuation marks
DIGIT_ZEROS = {"arab": 0x660, "arabext": 0x6F0, "beng": 0x9E6}  # code point of each numbering system's zero


def add_noise(pieces: list[tuple[str, str]], locale: str, rng: random.Random, typo_share: float = TYPO_SHARE) -> str:
    """The text of `pieces` (see `date_data.write_date`) as a person may type it."""
    text = "".join(
        misspell_month(piece, locale, rng)
        if field[0] in "ML" and is_name(piece) and rng.random() < typo_share
        else piece
        for field, piece in pieces
    )
    text = "".join(_as_typed(character) for character in text)
    text = disturb_marks(text, rng)
    if rng.random() < DIGITS_SHARE:
        text = text.translate(native_digits(locale))
    if rng.random() < CASE_SHARE:
        text = rng.choice((str.lower, str.upper, str.title))(text)
    return text


@functools.cache
def _as_typed(character: str) -> str:
    category = unicodedata.category(character)
    return "" if category == "Cf" else " " if category == "Zs" else character


@functools.cache
def native_digits(locale: str) -> dict[int, int]:
    """The translation table from 0-9 to the locale's own digits; empty where they are 0-9."""
    zero = DIGIT_ZEROS.get(Locale.parse(locale).default_numbering_system)
    return {ord("0") + n: zero + n for n in range(10)} if zero else {}


@functools.cache
def is_mark(character: str) -> bool:
    """Whether it is a space or a punctuation mark."""
    return unicodedata.category(character)[0] in "ZP"


def disturb_marks(text: str, rng: random.Random) -> str:
    """Drops or doubles some spaces and punctuation marks; never lets two numbers run into each other."""
    kept: list[str] = []
    for n, character in enumerate(text):
        draw = rng.random() if is_mark(character) else 1.0
        if draw < MISSING_SHARE:
            between_digits = kept and kept[-1].isdigit() and text[n + 1 : n + 2].isdigit()
            kept += " " if between_digits else ""
        else:
            kept += character * (2 if draw < MISSING_SHARE + DOUBLED_SHARE else 1)
    return "".join(kept)


@functools.cache
def month_names(locale: str) -> tuple[tuple[str, ...], ...]:
    """For each of the 12 months, its names in the locale: short and long, inside a date and alone."""
    months = Locale.parse(locale).months
    tables = [months[context][width] for context in ("format", "stand-alone") for width in ("abbreviated", "wide")]
    return tuple(tuple(sorted({table[month] for table in tables})) for month in range(1, 13))


def is_name(name: str) -> bool:
    """Whether a month is written without digits and with at least three letters."""
    return len(fold(name)) >= 3 and not any(character.isdigit() for character in name)


@functools.cache
def fold(name: str) -> str:
    """The name in lower case without marks: what is left of it after the rest of the noise."""
    return "".join(character for character in name.lower() if not is_mark(character))


def misspell_month(name: str, locale: str, rng: random.Random) -> str:
    """The name with one typo that leaves it nearer to its own month than to the others."""
    letters = alphabet(locale)
    for _ in range(50):
        typo = _one_typo(name, letters, rng)
        if fold(typo) != fold(name) and not _is_near_another_month(typo, name, locale):
            return typo
    return name


@functools.cache
def alphabet(locale: str) -> tuple[str, ...]:
    """The letters of the locale's month names."""
    return tuple(sorted({letter for names in month_names(locale) for name in names for letter in fold(name)}))


def _one_typo(name: str, letters: tuple[str, ...], rng: random.Random) -> str:
    n = rng.choice([n for n, character in enumerate(name) if not is_mark(character)])
    before, letter, after = name[:n], name[n], name[n + 1 :]
    swapped = before + after[:1] + letter + after[1:]
    return rng.choice((swapped, before + after, before + letter * 2 + after, before + rng.choice(letters) + after))


def _is_near_another_month(typo: str, name: str, locale: str) -> bool:
    others = (names for names in month_names(locale) if name not in names)
    return any(within_one_typo(fold(typo), fold(other)) for names in others for other in names)


def within_one_typo(a: str, b: str) -> bool:
    """Whether one letter swapped with its neighbour, dropped, added or replaced makes `a` into `b`, or nothing does."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    a, b = a[start:], b[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
