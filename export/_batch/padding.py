"""Which axes may be padded: those along which zeros behind a row change no output of it, seen on rows of the source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np

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


def padded_axes(model: Model, parts: Iterable[Part]) -> frozenset[str]:
    """Return the axes that may be padded, seen on some rows of the first part that can be read.

    Args:
        model: The bundle, opened.
        parts: The parts of the source.
    """
    axes = row_axes(model.manifest, model.job.outputs)
    window = _sample(model, parts) if axes else None
    if window is None:
        return frozenset()
    rows = [row for row in _different(window) if row not in window.problems]
    return frozenset(axis for axis in axes if _no_matter(model, axis, window, rows))


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


def _no_matter(model: Model, axis: str, window: Window, rows: list[int]) -> bool:
    """Tell whether rows, each padded to more than twice its length, give what they give as they are."""
    tried = 0
    for row in rows:
        longest = {each: int(length[row]) for each, length in window.lengths.items()}
        longer = {**longest, axis: padded_size(model.manifest, axis, 2 * longest[axis] + 1)}
        try:
            alone, more = (
                model.run(feeds_of(model.manifest, window, np.array([row]), each)) for each in (longest, longer)
            )
        except Exception:  # noqa: BLE001 - such a row says nothing of padding; the run itself will name it
            continue
        precision = model.manifest.get("precision", "float32")
        for spec, one, other in zip(model.outputs, alone, more, strict=True):
            sizes = output_sizes(spec, window)[row]
            if not _alike(without_padding(one[0], sizes), without_padding(other[0], sizes), precision):
                return False
        tried += 1
    return tried > 0


def _alike(one: np.ndarray, other: np.ndarray, precision: str) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    size = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
    return bool(np.allclose(one, other, rtol=0, atol=ALIKE.get(precision, 0.0) * float(size), equal_nan=True))
