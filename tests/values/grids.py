"""The values at which operators go wrong, by kind and dtype, and the arrays that are made of them.

A giver takes a kind and a dtype and returns the arrays an operator gets, or None where it has none of the kind.
"""

import numpy as np

FINITE, INFINITE, NAN, EMPTY, ONE = "finite", "infinities", "NaN", "an axis of 0", "axes of 1"
KINDS = (FINITE, INFINITE, NAN, EMPTY, ONE)

FLOATS = ("float32", "float16")
SIGNED = ("int32", "int64")
INTEGERS = (*SIGNED, "uint8")
REALS = (*FLOATS, *SIGNED)  # what has a sign
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")

_WHOLE = [0, 1, -1, 2, -2, 3, -3, 7, -7, 25, -25, 60, -30, 127, 128, 255, 2**24 + 1, -(2**24) - 1]
_FRACTIONS = [-0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 3.7, -7.3, 88.0, 1e-3, 1e4, -1e4, 1e30, -1e30]


def numbers(kind: str, dtype: str) -> np.ndarray:
    """Values of a kind in a line."""
    if dtype == "bool":
        found = [False, True]
    elif np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        found = [n for n in _WHOLE if limits.min <= n <= limits.max] + [limits.min, limits.max]
    else:
        found = [n for n in [*_WHOLE, *_FRACTIONS] if abs(n) < float(np.finfo(dtype).max)]
        found = {INFINITE: [np.inf, -np.inf, 0, 2.5, -1], NAN: [np.nan, 0, 1, -2.5]}.get(kind, found)
    return np.array({EMPTY: found[:0], ONE: found[1:2]}.get(kind, found), dtype)


def _has(kind: str, *dtypes: str) -> bool:
    """Whether a kind says something of dtypes: integers have neither infinities nor NaN."""
    return kind not in (INFINITE, NAN) or any(np.issubdtype(dtype, np.floating) for dtype in dtypes)


def each(kind: str, dtype: str):
    """All values in a line."""
    return (numbers(kind, dtype),) if _has(kind, dtype) else None


def pairs(kind: str, dtype: str):
    """Each value with each, and with those that are finite."""
    if not _has(kind, dtype):
        return None
    first = numbers(kind, dtype)
    second = first if kind in (EMPTY, ONE) else np.unique(np.concatenate([first, numbers(FINITE, dtype)[:12]]))
    left, right = np.meshgrid(first, second)
    both = np.stack([left.ravel(), right.ravel()])
    both = both if kind in (EMPTY, ONE) else np.concatenate([both, both[::-1]], axis=1)
    return tuple(both)


def quotients(kind: str, dtype: str):
    """Pairs whose second number is not an integer's zero."""
    found = pairs(kind, dtype)
    if found is None or not np.issubdtype(dtype, np.integer):
        return found
    left, right = found
    return left[right != 0], right[right != 0]


def rows(kind: str, dtype: str):
    """Rows of four for what looks along an axis: mixed signs, zeros, ties, large ones, and what is not finite."""
    if not _has(kind, dtype):
        return None
    if dtype == "bool":
        found = [[True, False, True, False], [False] * 4, [True] * 4]
    elif np.issubdtype(dtype, np.integer):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        found = [[3, 1, 2, 7], [0, 0, 0, 0], [5, 2, 5, 2], [high, 0, 1, high - 1], [low, low + 1, 3, 2]]
        if low:
            found += [[-1, -7, -2, -25], [2, -2, 2, -3], [2**24 + 1, 2**24, -(2**24) - 1, -(2**24)]]
    else:
        inf, nan = np.inf, np.nan
        found = {
            INFINITE: [[1, inf, 2, 3], [-inf, 1, -2, 3], [inf, -inf, 1, 2], [inf] * 4, [-inf] * 4, [inf, 1, inf, 0]],
            NAN: [[nan, 1, 2, 3], [1, 3, nan, -2], [1, 2, 3, nan], [nan] * 4, [nan, 1, nan, 2]],
        }.get(
            kind,
            [[3, 1.5, -2, 7.25], [-1, -2.5, -0.5, -3], [0.0, -0.0, 0.0, -0.0], [2, 2, -3, 2], [1e4, 1e4, 2e4, 1e4]],
        )
    array = np.array(found, dtype)
    return ({EMPTY: array[:, :0], ONE: array[:1, :1]}.get(kind, array),)


def ordinary(*shapes: tuple[int, ...]):
    """Arrays of these shapes, each of small numbers of both signs: for what only moves them."""

    def given(kind: str, dtype: str):
        if kind != FINITE:
            return None
        sizes = [int(np.prod(shape)) for shape in shapes]
        small = [np.arange(size) % 13 - (0 if dtype.startswith("u") else 5) for size in sizes]
        return tuple(
            (each / (2 if dtype in FLOATS else 1)).astype(dtype).reshape(shape)
            for each, shape in zip(small, shapes, strict=True)
        )

    return given


def fixed(*arrays, **kinds):
    """These arrays, floats in the dtype of the row; by keyword (`nan`, `infinite`, `empty`) those of other kinds."""
    words = {"nan": NAN, "infinite": INFINITE, "empty": EMPTY}
    named = {FINITE: arrays, **{words[word]: of for word, of in kinds.items()}}

    def given(kind: str, dtype: str):
        if kind not in named:
            return None
        taken = [np.asarray(each) for each in named[kind]]
        return tuple(each.astype(dtype) if each.dtype == np.float64 else each for each in taken)

    return given


def images(*shape: int, without: tuple[str, ...] = ()):
    """Arrays of this shape, of small numbers of both signs, one or two of which are what a kind says."""
    placed = {FINITE: (), INFINITE: ((-1, np.inf), (0, -np.inf)), NAN: ((-1, np.nan),)}

    def given(kind: str, dtype: str):
        if kind not in placed or kind in without or not _has(kind, dtype):
            return None
        (found,) = ordinary(shape)(FINITE, dtype)
        for place, number in placed[kind]:
            found.flat[found.size // 2 + place] = number
        return (found,)

    return given
