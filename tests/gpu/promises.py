"""Inputs that are altered where a mask hides them, and which rows of the output must not see it. NumPy alone."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .kinds import Arrays
from .masks import MASKS, without_keys

POISON = {"NaN": np.nan, "inf": np.inf, "1e30": 1e30}
GARBAGE = (1e4, -1e4)


class Altered(NamedTuple):
    """Inputs that were altered.

    Attributes:
        arrays: The inputs.
        same: Rows of the output, `(B, Tq)`, that must be what they were.
        zero: Rows that must be zero.
        told: What was done.
        exactly: Whether bit for bit: not where other queries see it, since that may decide how all is computed.
    """

    arrays: Arrays
    same: np.ndarray
    zero: np.ndarray
    told: str = ""
    exactly: bool = True


def without_a_key(mask: str, arrays: Arrays, keep: np.ndarray) -> Iterator[Altered]:
    """Promise 2: one example loses all its keys; its rows are zeros, and those of the others stay as they are."""
    if not set(MASKS[mask].inputs) - {"score_bias"}:
        return
    seeing = np.flatnonzero(keep.any((-1, -2)))
    if len(seeing) == 0:
        return
    lost = np.zeros(keep.shape[:2], bool)
    lost[seeing[0]] = True
    yield Altered(without_keys(arrays, seeing[0]), ~lost, lost)


def poisoned(mask: str, arrays: Arrays, keep: np.ndarray) -> Iterator[Altered]:
    """Promise 3: NaN, infinity and 1e30 in keys that no query of the example sees, and in their values."""
    hidden = ~keep.any(1)
    if not hidden.any():
        return
    everywhere = np.ones(keep.shape[:2], bool)
    for told, poison in POISON.items():
        changed = {name: np.where(hidden[..., None], np.float32(poison), arrays[name]) for name in ("keys", "values")}
        yield Altered({**arrays, **changed}, everywhere, ~everywhere, told)


def with_garbage(mask: str, arrays: Arrays, keep: np.ndarray) -> Iterator[Altered]:
    """Promise 3 for masks that differ by query: large numbers in a key that some see, and others do not."""
    some, all_ = keep.any(1), keep.all(1)
    mixed = some & ~all_
    if not mixed.any():
        return
    column = np.argmax(mixed, axis=-1)  # of each example the first such key
    has = mixed.any(-1)
    chosen = (np.arange(keep.shape[-1]) == column[:, None]) & has[:, None]
    blind = ~np.take_along_axis(keep, column[:, None, None], axis=-1)[..., 0] | ~has[:, None]
    for garbage in GARBAGE:
        changed = {name: np.where(chosen[..., None], np.float32(garbage), arrays[name]) for name in ("keys", "values")}
        yield Altered({**arrays, **changed}, blind, np.zeros_like(blind), f"{garbage:g}", exactly=False)


def lengths_beyond(mask: str, arrays: Arrays, keep: np.ndarray) -> Iterator[Altered]:
    """Lengths above Tk count as Tk, and those below 0 as 0."""
    source = MASKS[mask].inputs.get("valid_lens")
    if source is None:
        return
    Tk, lengths = keep.shape[-1], arrays[source]
    beyond = np.where(lengths == Tk, Tk + 3, np.where(lengths == 0, -2, lengths)).astype(lengths.dtype)
    everywhere = np.ones(keep.shape[:2], bool)
    if not np.array_equal(beyond, lengths):
        yield Altered({**arrays, source: beyond}, everywhere, ~everywhere)


ALTERED: dict[str, Callable[[str, Arrays, np.ndarray], Iterator[Altered]]] = {
    "without a key": without_a_key,
    "poison": poisoned,
    "garbage": with_garbage,
    "lengths beyond": lengths_beyond,
}
