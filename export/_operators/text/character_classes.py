"""Sets of Unicode characters that match a single-character RE2 pattern in TensorFlow."""

import functools
import itertools
import re

import numpy as np
import tensorflow as tf

from ..._private_api.tensorflow_internals import eager_mode

LAST = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)  # no character is of them
_SINGLE = r"(?:\\[sSdDwW]|\\[pP]\{\w+\}|\\x\{\w+\}|\\[^\w]|\[(?:\\.|[^\]\\])+\]|[^\\\[\](){}.*+?^$|])"
_ANY = rf"{_SINGLE}(?:\|{_SINGLE})*"
_OF_ONE = re.compile(rf"{_ANY}|\({_ANY}\)")


@functools.cache
def everyone() -> list[str]:
    """Return all characters."""
    return [chr(code) for code in range(LAST + 1) if code not in SURROGATES]


def is_of_one(pattern: str) -> bool:
    """Tell whether a pattern of RE2 matches single characters, and none that depends on where it stands."""
    return _OF_ONE.fullmatch(pattern) is not None


def matching(pattern: str) -> np.ndarray:
    """Return which of `everyone` match."""
    with eager_mode():
        return np.asarray(tf.strings.regex_full_match(tf.constant(everyone()), pattern))


def expression(members: np.ndarray) -> str:
    """Return the characters for which an array over `everyone` is true as RE2 writes them: `[...]`."""
    codes = np.array([*map(ord, itertools.compress(everyone(), members))])
    if not codes.size:
        return r"[^\x00-\x{10FFFF}]"
    ends = np.flatnonzero(np.diff(codes) != 1)
    firsts, lasts = codes[[0, *(ends + 1)]], codes[[*ends, -1]]
    return "[" + "".join(_range(first, last) for first, last in zip(firsts, lasts, strict=True)) + "]"


def _range(first: int, last: int) -> str:
    return rf"\x{{{first:X}}}" if first == last else rf"\x{{{first:X}}}-\x{{{last:X}}}"
