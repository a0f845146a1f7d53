"""A window of rows: what was read of them, checked, and which of them run together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._standalone.verify import Manifest, Spec, numpy_dtype
from .columns import Problems, Ragged, read_column
from .job import WINDOW_BYTES

PADDING = 0.25  # of the places of the rows themselves is as much as is padded, unless it is less than a run costs:
RUN = 500  # places, such as steps of a sequence or pairs of query and key


@dataclass(frozen=True)
class Window:
    """Rows of a part, some hundreds or thousands.

    Attributes:
        first_row: Which row of its file the first one is.
        rows: How many rows.
        inputs: Their arrays by input.
        lengths: How long each row is, by axis.
        problems: Why a row cannot be run, by row of the window.
    """

    first_row: int
    rows: int
    inputs: dict[str, Ragged]
    lengths: dict[str, np.ndarray]
    problems: Problems


def read_window(batch: Any, manifest: Manifest, first_row: int, padded: frozenset[str]) -> Window:
    """Return the rows of a `pyarrow.RecordBatch`; a column that counts and is absent is filled in from the lists."""
    rows, inputs, problems = batch.num_rows, dict[str, Ragged](), Problems()
    lengths: dict[str, np.ndarray] = {}
    owners: dict[str, str] = {}
    names = batch.schema.names
    for spec in manifest.inputs:
        name = spec.name
        if name not in names:
            continue
        inputs[name], found = read_column(batch.column(name), spec)
        for row, reason in found.items():
            problems.setdefault(row, reason)
        for axis, size in enumerate(spec.shape[1:]):
            if isinstance(size, str):
                own = inputs[name].sizes[:, axis]
                known = lengths.setdefault(size, own)
                whose = owners.setdefault(size, name)
                for row in np.flatnonzero(known != own).tolist():
                    both = f"`{name}` is {own[row]} long and `{whose}` {known[row]}; both are `{size}`"
                    problems.setdefault(row, both)
    for symbol, step in manifest.multiples.items():
        if symbol in lengths and symbol not in padded:
            for row in np.flatnonzero(lengths[symbol] % step).tolist():
                problems.setdefault(row, f"`{symbol}` must be a multiple of {step}; it is {lengths[symbol][row]}")
    for spec in manifest.inputs:
        counted = manifest.counts.get(spec.name)
        if counted in lengths:
            inputs[spec.name] = _counts(inputs.get(spec.name), lengths[counted], spec.dtype)
    return Window(first_row, rows, inputs, lengths, problems)


def _counts(given: Ragged | None, lengths: np.ndarray, dtype: str) -> Ragged:
    """Return an input that counts: the lengths of the rows, or what is given, but no more than these.

    More than there are counts all, and would count padding too.
    """
    if given is None:
        return Ragged(lengths.astype(dtype), np.arange(len(lengths) + 1), np.zeros((len(lengths), 0), np.int64))
    most = np.repeat(lengths, np.diff(given.starts)).astype(given.values.dtype)
    return Ragged(np.minimum(given.values, most), given.starts, given.sizes)


def output_sizes(spec: Spec, window: Window) -> np.ndarray:
    """Return the size of each axis of an output in each row: (rows, axes), -1 where only the model knows it."""
    sizes = [
        np.full(window.rows, size) if isinstance(size, int) else window.lengths.get(size, np.full(window.rows, -1))
        for size in spec.shape[1:]
    ]
    return np.stack(sizes, axis=1).astype(np.int64) if sizes else np.zeros((window.rows, 0), np.int64)


def output_bytes(specs: Iterable[Spec], window: Window) -> np.ndarray:
    """Return how many bytes the largest output of each row takes, and all of them: (2, rows).

    An axis that only the model knows is taken for as long as the longest that is known.
    """
    longest = np.max([np.ones(window.rows), *window.lengths.values()], axis=0)[:, None]
    each = []
    for spec in specs:
        sizes = output_sizes(spec, window)
        each.append(np.prod(np.where(sizes < 0, longest, sizes), axis=1) * numpy_dtype(spec.dtype).itemsize)
    return np.stack([np.max(each, axis=0), np.sum(each, axis=0)])


def spans(window: Window, outputs: Iterable[Spec]) -> Iterator[tuple[int, int]]:
    """Yield runs of rows whose inputs and outputs do not take more memory than a window may, a row at least."""
    sizes = output_bytes(outputs, window)[1]
    sizes[list(window.problems)] = 0
    for ragged in window.inputs.values():
        sizes += np.prod(ragged.sizes, axis=1) * ragged.values.itemsize
    start, taken = 0, 0.0
    for row, size in enumerate(sizes):
        if row > start and taken + size > WINDOW_BYTES:
            yield start, row
            start, taken = row, 0.0
        taken += size
    yield start, window.rows


class Batches:
    """Which rows run together: of like length, so that little is padded, and not more than memory allows."""

    def __init__(self, most: int, padded: frozenset[str]) -> None:
        """Begin with `most` rows for any length.

        Args:
            most: The most rows of a run.
            padded: The axes that may be padded.
        """
        self.most, self.padded = most, padded
        self._fewer: dict[int, int] = {}  # the most rows where memory did not do, by the logarithm of their size

    def lower(self, lengths: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
        """Take fewer rows of such lengths from now on: these were too many."""
        size = _magnitude([max(1, int(length[rows].max(initial=1))) for length in lengths.values()])
        self._fewer[size] = min(self._fewer.get(size, self.most), max(1, len(rows) // 2))

    def of(self, lengths: Mapping[str, np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
        """Return rows in batches, the longest first: they leave memory that shorter ones fit into."""
        exact = [length[rows] for axis, length in lengths.items() if axis not in self.padded]
        groups = [rows]
        if exact:
            _, of_group = np.unique(np.stack(exact), axis=1, return_inverse=True)
            of_group = of_group.reshape(-1)  # NumPy 2.0 gives it two axes
            groups = [rows[of_group == group] for group in range(of_group.max(initial=-1) + 1)]
        padded = {axis: length for axis, length in lengths.items() if axis in self.padded}
        found = [batch for group in groups for batch in self._cut(lengths, self._sorted(padded, group))]
        return (
            sorted(found, key=lambda batch: -max(length[batch].max() for length in lengths.values()))
            if lengths
            else found
        )

    def _sorted(self, padded: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        """Return rows of like lengths beside each other; a second axis is sorted within slices of the first."""
        if not padded:
            return rows
        (first, *others) = padded
        rows = rows[np.argsort(-padded[first][rows], kind="stable")]
        if not others:
            return rows
        slices = max(1, round((len(rows) / self.most) ** (1 / len(padded))))
        rest = {axis: padded[axis] for axis in others}
        return np.concatenate([self._sorted(rest, each) for each in np.array_split(rows, slices)])

    def _cut(self, lengths: Mapping[str, np.ndarray], rows: np.ndarray) -> Iterator[np.ndarray]:
        """Cut sorted rows where there are too many, or too much of them is padding."""
        axes = np.stack([length[rows] for length in lengths.values()], axis=1).tolist() if lengths else [[]] * len(rows)
        start, largest, own = 0, [1] * len(lengths), 0
        for index, sizes in enumerate(axes):
            together = [max(pair) for pair in zip(largest, sizes, strict=True)]
            places, here = math.prod(together), math.prod(max(1, size) for size in sizes)
            most = min(self.most, self._fewer.get(_magnitude(together), self.most))
            padding = places * (index + 1 - start) - (own + here)
            if index > start and (index - start >= most or padding > max(RUN, PADDING * (own + here))):
                yield rows[start:index]
                start, together, own = index, [max(1, size) for size in sizes], 0
            largest, own = together, own + here
        if len(rows):
            yield rows[start:]


def _magnitude(sizes: Iterable[int]) -> int:
    return math.prod(sizes).bit_length()
