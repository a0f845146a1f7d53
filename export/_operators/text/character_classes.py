"""Sets of Unicode characters that match a single-character RE2 pattern in TensorFlow.

TensorFlow itself decides which characters match, so that the Unicode version of its RE2 counts. A set, a boolean array
over `all_characters()`, is written as explicit ranges, which any other version of RE2 reads in the same way.
"""

import functools
import itertools
import re

import numpy as np
import tensorflow as tf

from ..._private_api.tensorflow_internals import eager_mode

LAST_CODE = 0x10FFFF
# Code points that no UTF-8 text contains
SURROGATES = range(0xD800, 0xE000)
_SINGLE = r"(?:\\[sSdDwW]|\\[pP]\{\w+\}|\\x\{\w+\}|\\[^\w]|\[(?:\\.|[^\]\\])+\]|[^\\\[\](){}.*+?^$|])"
_ANY = rf"{_SINGLE}(?:\|{_SINGLE})*"
_SINGLE_CHARACTER = re.compile(rf"{_ANY}|\({_ANY}\)")


@functools.cache
def all_characters() -> list[str]:
    """Return all Unicode characters in the order of their code points."""
    return [chr(code) for code in range(LAST_CODE + 1) if code not in SURROGATES]


def is_single_character_pattern(pattern: str) -> bool:
    """Return True if an RE2 pattern matches exactly one character, whatever its neighbours are."""
    return _SINGLE_CHARACTER.fullmatch(pattern) is not None


def match_characters(pattern: str) -> np.ndarray:
    """Return a mask of the characters that match, (number of `all_characters()`,)."""
    with eager_mode():
        return np.asarray(tf.strings.regex_full_match(tf.constant(all_characters()), pattern))


def format_class(members: np.ndarray) -> str:
    """Return the RE2 character class, `[...]`, of a mask over `all_characters()`."""
    codes = np.array([*map(ord, itertools.compress(all_characters(), members))])
    if not codes.size:
        return r"[^\x00-\x{10FFFF}]"
    ends = np.flatnonzero(np.diff(codes) != 1)
    firsts, lasts = codes[[0, *(ends + 1)]], codes[[*ends, -1]]
    return "[" + "".join(_format_range(first, last) for first, last in zip(firsts, lasts, strict=True)) + "]"


def _format_range(first: int, last: int) -> str:
    return rf"\x{{{first:X}}}" if first == last else rf"\x{{{first:X}}}-\x{{{last:X}}}"
