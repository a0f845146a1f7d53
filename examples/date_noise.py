"""Noise of typed dates, which keeps each date unambiguous in its locale.

Rules:

- Digits: if the locale's own digits are not 0 to 9, half of the dates use these digits.
- Direction marks and joiners are dropped, and every kind of space becomes an ASCII space, as on a keyboard.
- One month name in ten has a typo: two letters swapped, or one letter dropped, doubled or replaced. The result is
  closer to its month than to any other month of the locale, short names included ("Ju" never occurs).
  Months written with digits ("6月", "tháng 6") have no typos.
- Spaces and punctuation: 15% are missing, 10% are doubled. A space separates digits that would touch
  ("1/11/2020" may become "1 11/2020", never "111/2020").
- Case: two dates in five are written in lower, upper or title case.
"""

import functools
import random
import unicodedata

from babel import Locale

TYPO_SHARE, CASE_SHARE, DIGITS_SHARE = 0.1, 0.4, 0.5
MISSING_SHARE, DOUBLED_SHARE = 0.15, 0.1  # of the spaces and punctuation marks
DIGIT_ZEROS = {"arab": 0x660, "arabext": 0x6F0, "beng": 0x9E6}  # code point of zero, by numbering system


def add_noise(pieces: list[tuple[str, str]], locale: str, rng: random.Random, typo_share: float = TYPO_SHARE) -> str:
    """Return the text of `pieces` (see `date_data.write_date`) with random noise."""
    text = "".join(
        misspell_month(piece, locale, rng)
        if field[0] in "ML" and is_name(piece) and rng.random() < typo_share
        else piece
        for field, piece in pieces
    )
    text = "".join(_normalize_character(character) for character in text)
    text = disturb_marks(text, rng)
    if rng.random() < DIGITS_SHARE:
        text = text.translate(get_digit_translation(locale))
    if rng.random() < CASE_SHARE:
        text = rng.choice((str.lower, str.upper, str.title))(text)
    return text


@functools.cache
def _normalize_character(character: str) -> str:
    category = unicodedata.category(character)
    return "" if category == "Cf" else " " if category == "Zs" else character


@functools.cache
def get_digit_translation(locale: str) -> dict[int, int]:
    """Return the translation table from 0-9 to the digits of the locale; empty if these are 0-9."""
    zero = DIGIT_ZEROS.get(Locale.parse(locale).default_numbering_system)
    return {ord("0") + digit: zero + digit for digit in range(10)} if zero else {}


@functools.cache
def is_mark(character: str) -> bool:
    """Return True if a character is a space or a punctuation mark."""
    return unicodedata.category(character)[0] in "ZP"


def disturb_marks(text: str, rng: random.Random) -> str:
    """Drop or double some spaces and punctuation marks; a space replaces a dropped mark between two digits."""
    result: list[str] = []
    for index, character in enumerate(text):
        draw = rng.random() if is_mark(character) else 1.0
        if draw < MISSING_SHARE:
            is_between_digits = result and result[-1].isdigit() and text[index + 1 : index + 2].isdigit()
            result += " " if is_between_digits else ""
        else:
            result += character * (2 if draw < MISSING_SHARE + DOUBLED_SHARE else 1)
    return "".join(result)


@functools.cache
def get_month_names(locale: str) -> tuple[tuple[str, ...], ...]:
    """Return the names of each of the 12 months in the locale: short and long, inside a date and alone."""
    months = Locale.parse(locale).months
    tables = [months[context][width] for context in ("format", "stand-alone") for width in ("abbreviated", "wide")]
    return tuple(tuple(sorted({table[month] for table in tables})) for month in range(1, 13))


def is_name(name: str) -> bool:
    """Return True if the name of a month has at least three letters and no digits."""
    return len(fold_name(name)) >= 3 and not any(character.isdigit() for character in name)


@functools.cache
def fold_name(name: str) -> str:
    """Return the name in lower case without marks: a form that the other kinds of noise do not change."""
    return "".join(character for character in name.lower() if not is_mark(character))


def misspell_month(name: str, locale: str, rng: random.Random) -> str:
    """Return the name with one typo, such that no other month becomes equal by a second typo."""
    letters = list_letters(locale)
    for _ in range(50):  # for some short names nearly all typos are ambiguous
        typo = _make_typo(name, letters, rng)
        if fold_name(typo) != fold_name(name) and not _is_near_another_month(typo, name, locale):
            return typo
    return name


@functools.cache
def list_letters(locale: str) -> tuple[str, ...]:
    """Return the letters of the month names of the locale."""
    return tuple(sorted({letter for names in get_month_names(locale) for name in names for letter in fold_name(name)}))


def _make_typo(name: str, letters: tuple[str, ...], rng: random.Random) -> str:
    index = rng.choice([index for index, character in enumerate(name) if not is_mark(character)])
    head, letter, tail = name[:index], name[index], name[index + 1 :]
    swapped, doubled = head + tail[:1] + letter + tail[1:], head + letter * 2 + tail
    return rng.choice((swapped, head + tail, doubled, head + rng.choice(letters) + tail))


def _is_near_another_month(typo: str, name: str, locale: str) -> bool:
    other_months = (names for names in get_month_names(locale) if name not in names)
    return any(is_within_one_typo(fold_name(typo), fold_name(month)) for names in other_months for month in names)


def is_within_one_typo(a: str, b: str) -> bool:
    """Return True if `a` equals `b`, or `b` with one letter swapped with the next, dropped, added or replaced."""
    prefix = 0
    while prefix < min(len(a), len(b)) and a[prefix] == b[prefix]:
        prefix += 1
    a, b = a[prefix:], b[prefix:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
