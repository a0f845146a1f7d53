"""What rows of the source tell of a model: which axes may be padded, and whether rows may run together at all.

No manifest says that zeros behind a row change nothing, or that one example does not see another. So some rows are run
as they are, and again with zeros behind them, and with another row beside them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .._standalone.verify import Arrays
from .feeds import feeds_of, padded_size
from .job import row_axes
from .model import Model
from .parquet import READ_ERRORS
from .results import without_padding
from .run_parts import open_part
from .source import Part
from .windows import Window, output_sizes, read_window

ROWS = 8
# What rounding does, by precision, as a share of the largest number of a row: with padding, sums have other lengths.
# What padding does to a model that does not expect it is more: a mean over twice as many numbers is half as large.
ALIKE = {"float32": 1e-4, "float16": 2e-2, "int8": 5e-2}


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        padded: The axes along which zeros behind a row change no output of it.
        together: Whether a row beside it changes no output of a row.
    """

    padded: frozenset[str] = frozenset()
    together: bool = False


def tried(model: Model, parts: Iterable[Part]) -> Trial:
    """Try some rows of the first part that can be read.

    Args:
        model: The bundle, opened.
        parts: The parts of the source.
    """
    window = _sample(model, parts)
    if window is None:
        return Trial()
    rows = [row for row in _different(window) if row not in window.problems]

    def may_be_padded(axis: str) -> bool:
        return _same(model, window, rows, lambda row: _longer(model, axis, window, row))

    padded = frozenset(filter(may_be_padded, row_axes(model.manifest, model.job.outputs)))
    return Trial(padded, _same(model, window, rows, lambda row: _beside(_as_it_is(model, window, row))))


def _sample(model: Model, parts: Iterable[Part]) -> Window | None:
    """Return the first rows of the source that can be read."""
    for part in parts:
        opened = open_part(part, model.manifest, model.job)
        if isinstance(opened, str) or not part.rows:
            continue
        with opened, contextlib.suppress(*READ_ERRORS):
            batch = next(opened.iter_batches(256, row_groups=list(range(*part.groups)), use_threads=False))
            return read_window(batch, model.manifest, part.first_row, frozenset())
    return None


def _different(window: Window) -> list[int]:
    """Return some rows, of lengths as different as there are; long ones are slow, so none beyond the median."""
    if not window.lengths:
        return list(range(min(ROWS, window.rows)))
    order = np.lexsort(list(window.lengths.values()))
    half = order[: max(1, (len(order) + 1) // 2)]
    return [int(row) for row in half[np.unique(np.linspace(0, len(half) - 1, ROWS).astype(int))]]


def _as_it_is(model: Model, window: Window, row: int) -> Arrays:
    own = {axis: int(length[row]) for axis, length in window.lengths.items()}
    return feeds_of(model.manifest, window, np.array([row]), own)


def _longer(model: Model, axis: str, window: Window, row: int) -> Arrays:
    """Return a row padded along an axis, to more than twice its length."""
    own = {each: int(length[row]) for each, length in window.lengths.items()}
    longer = {**own, axis: padded_size(model.manifest, axis, 2 * own[axis] + 1)}
    return feeds_of(model.manifest, window, np.array([row]), longer)


def _beside(feeds: Arrays) -> Arrays:
    """Return a row between two of another one, which has halves of its numbers, or whole ones the other way round."""

    def other(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "f":
            half: np.ndarray = (array / 2).astype(array.dtype)
            return half
        return array[:, ::-1] if array.ndim > 1 else array

    return {name: np.concatenate([other(array), array, other(array)]) for name, array in feeds.items()}


def _same(model: Model, window: Window, rows: list[int], changed: Callable[[int], Arrays]) -> bool:
    """Tell whether rows give, when they run otherwise, what they give as they are."""
    compared = 0
    for row in rows:
        try:
            alone, more = model.run(_as_it_is(model, window, row)), model.run(changed(row))
        except Exception:  # noqa: BLE001 - such a row tells nothing; the run itself will name it
            continue
        precision = model.manifest.get("precision", "float32")
        for spec, one, other in zip(model.outputs, alone, more, strict=True):
            sizes, middle = output_sizes(spec, window)[row], len(other) // 2
            if not _alike(without_padding(one[0], sizes), without_padding(other[middle], sizes), precision):
                return False
        compared += 1
    return compared > 0


def _alike(one: np.ndarray, other: np.ndarray, precision: str) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    size = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
    return bool(np.allclose(one, other, rtol=0, atol=ALIKE.get(precision, 0.0) * float(size), equal_nan=True))
