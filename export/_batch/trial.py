"""What rows of the source tell of a model: which axes may be padded, and whether rows may run together at all.

No manifest says that zeros behind a row change nothing, or that one example does not see another. So some rows are run
as they are, and again with zeros behind them, and between other rows: with their own numbers, and with others, since a
largest number, say, minds zeros only where all are negative.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .._alike import alike
from .._standalone.verify import Arrays
from .feeds import feeds_alone
from .job import WINDOW_BYTES, row_axes
from .model import Model
from .parquet import READ_ERRORS
from .results import rounding_of, sizes_of_channels, without_padding
from .run_parts import open_part, refuse_gigantic, rows_at_once, small_groups
from .source import Part
from .windows import Window, output_sizes, read_window

PARTS, READ, ROWS = 3, 256, 6
TIMES = (1.0, -1.0, 1e-2, 1e2)  # what the numbers of a row are multiplied by

Row = tuple[Window, int]


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        padded: The axes along which zeros behind a row change no output of it.
        together: Whether rows beside it change no output of a row.
    """

    padded: frozenset[str] = frozenset()
    together: bool = False


def tried(model: Model, parts: Sequence[Part]) -> Trial:
    """Try rows of the first part, of one in the middle, and of the last.

    Args:
        model: The bundle, opened.
        parts: The parts of the source.
    """
    axes, full = row_axes(model.manifest, model.job.outputs), [part for part in parts if part.rows]
    if not full:
        return Trial(frozenset(axes), together=True)
    rows, alone = list(_rows(model, full)), partial(feeds_alone, model.manifest)
    padded = frozenset(axis for axis in axes if _changes_nothing(model, rows, partial(alone, more=axis)))
    single = [spec.name for spec in model.manifest.inputs if len(spec.shape) == 1]
    numbers = {name: np.concatenate([alone(*row)[name] for row in rows]) for name in single} if rows else {}
    return Trial(padded, _changes_nothing(model, rows, lambda window, row: _between(alone(window, row), numbers)))


def _rows(model: Model, parts: Sequence[Part]) -> Iterator[Row]:
    """Yield rows that can be read, of lengths as different as there are; of further parts while there are none."""
    some = np.unique(np.linspace(0, len(parts) - 1, PARTS).astype(int)).tolist()
    found = 0
    for index in [*some, *(index for index in range(len(parts)) if index not in some)]:
        if found and index not in some:
            return
        window = _head(model, parts[index])
        if window is None:
            continue
        # rows of nothing run as one zero, not as none
        full = np.all([np.ones(window.rows, bool), *(length > 0 for length in window.lengths.values())], axis=0)
        good = np.array([row for row in np.flatnonzero(full).tolist() if row not in window.problems], np.int64)
        order = good[np.lexsort([length[good] for length in window.lengths.values()])] if window.lengths else good
        chosen = order[np.unique(np.linspace(0, len(order) - 1, ROWS).astype(int))] if len(order) else order
        found += len(chosen)
        yield from ((window, int(row)) for row in chosen)


def _head(model: Model, part: Part) -> Window | None:
    opened = open_part(part, model.manifest, model.job)
    if isinstance(opened, str):
        return None
    with opened, contextlib.suppress(*READ_ERRORS, StopIteration):
        groups = next(small_groups(opened.metadata, *part.groups))
        rows = min(READ, rows_at_once(opened, groups, part.row_bytes))
        batch = next(opened.iter_batches(rows, row_groups=groups, use_threads=False))
        # rows of any length: they are compared at the next one that the model takes
        window = read_window(batch, model.manifest, part.first_row, frozenset(model.manifest.multiples))
        refuse_gigantic(window, model.outputs, min(model.job.limit, WINDOW_BYTES))
        return window
    return None


def _between(feeds: Arrays, numbers: Mapping[str, np.ndarray]) -> Arrays:
    """Return a row between two others of the same lengths, which hold other numbers.

    Args:
        feeds: The row.
        numbers: By inputs that are one number a row, those of other rows.
    """

    def others(name: str, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if array.dtype.kind == "f":
            return (array * -100).astype(array.dtype), np.zeros_like(array)
        if array.ndim > 1:
            return array[:, ::-1], np.full_like(array, "" if array.dtype == object else 0)
        return numbers[name].max(keepdims=True), numbers[name].min(keepdims=True)

    pairs = {name: others(name, array) for name, array in feeds.items()}
    return {name: np.concatenate([pairs[name][0], array, pairs[name][1]]) for name, array in feeds.items()}


def _times(feeds: Arrays, factor: float) -> Arrays:
    return {
        name: (array * factor).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in feeds.items()
    }


def _changes_nothing(model: Model, rows: list[Row], otherwise: Callable[[Window, int], Arrays]) -> bool:
    """Tell whether rows give, when they run otherwise, what they give as they are; not so where none can be run."""
    compared = 0
    for factor in TIMES:
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in model.outputs]
        for window, row in rows:
            try:
                alone = model.run(_times(feeds_alone(model.manifest, window, row), factor))
                other = model.run(_times(otherwise(window, row), factor))
            except Exception:  # noqa: BLE001 - such a row tells nothing; the run itself will name it
                continue
            for pairs, spec, one, among in zip(found, model.outputs, alone, other, strict=True):
                sizes = output_sizes(spec, window)[row]
                pairs.append((without_padding(one[0], sizes), without_padding(among[len(among) // 2], sizes)))
        for spec, pairs in zip(model.outputs, found, strict=True):
            sizes = np.max([sizes_of_channels(one, spec) for one, _ in pairs], axis=0, initial=0.0)
            limits = rounding_of(sizes, model.manifest.precision)
            if not all(alike(one, other, atol=limits) for one, other in pairs):
                return False
        compared += len(found[0])
    return compared > 0
