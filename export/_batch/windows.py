"""A window of rows: what was read of them, checked, and which of them run together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import Problems, Ragged, read_column
from .job import WINDOW_BYTES, specs_of

FEWEST = 8  # rows of a run that is cut short for the sake of less padding
PADDING = 1.25  # times the numbers of the rows themselves


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


def read_window(batch: Any, manifest: Mapping[str, Any], first_row: int, padded: frozenset[str]) -> Window:
    """Return the rows of a `pyarrow.RecordBatch`; a column that counts and is absent is filled in from the lists."""
    rows, inputs, problems = batch.num_rows, dict[str, Ragged](), Problems()
    lengths: dict[str, np.ndarray] = {}
    owners: dict[str, str] = {}
    names = batch.schema.names
    for spec in manifest["inputs"]:
        name = spec["name"]
        if name not in names:
            continue
        inputs[name], found = read_column(batch.column(name), spec)
        for row, reason in found.items():
            problems.setdefault(row, reason)
        for axis, size in enumerate(spec["shape"][1:]):
            if isinstance(size, str):
                own = inputs[name].sizes[:, axis]
                known = lengths.setdefault(size, own)
                whose = owners.setdefault(size, name)
                for row in np.flatnonzero(known != own):
                    problems.setdefault(
                        int(row), f"`{name}` is {own[row]} long and `{whose}` {known[row]}; both are `{size}`"
                    )
    for axis, step in manifest.get("multiples", {}).items():
        if axis in lengths and axis not in padded:
            for row in np.flatnonzero(lengths[axis] % step):
                problems.setdefault(int(row), f"`{axis}` must be a multiple of {step}; it is {lengths[axis][row]}")
    for spec in manifest["inputs"]:
        if spec["name"] not in inputs:
            counted = lengths[manifest["counts"][spec["name"]]].astype(spec["dtype"])
            inputs[spec["name"]] = Ragged(counted, np.arange(rows + 1), np.zeros((rows, 0), np.int64))
    return Window(first_row, rows, inputs, lengths, problems)


def output_sizes(spec: Mapping[str, Any], window: Window) -> np.ndarray:
    """Return the size of each axis of an output in each row: (rows, axes), -1 where only the model knows it."""
    sizes = [
        np.full(window.rows, size) if isinstance(size, int) else window.lengths.get(size, np.full(window.rows, -1))
        for size in spec["shape"][1:]
    ]
    return np.stack(sizes, axis=1).astype(np.int64) if sizes else np.zeros((window.rows, 0), np.int64)


def spans(window: Window, manifest: Mapping[str, Any], outputs: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield runs of rows whose inputs and outputs do not take more memory than a window may, a row at least."""
    sizes = np.zeros(window.rows)
    for ragged in window.inputs.values():
        sizes += np.prod(ragged.sizes, axis=1) * ragged.values.itemsize
    for spec in specs_of(manifest, outputs):
        sizes += np.prod(np.abs(output_sizes(spec, window)), axis=1) * np.dtype(spec["dtype"]).itemsize
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
        size = _size({axis: int(length[rows].max(initial=1)) for axis, length in lengths.items()})
        self._fewer[size] = min(self._fewer.get(size, self.most), max(1, len(rows) // 2))

    def of(self, lengths: Mapping[str, np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
        """Return rows in batches, the longest first: they leave memory that shorter ones fit into."""
        exact = [length[rows] for axis, length in lengths.items() if axis not in self.padded]
        groups = [rows]
        if exact:
            _, of_group = np.unique(np.stack(exact), axis=1, return_inverse=True)
            groups = [rows[of_group == group] for group in range(of_group.max(initial=-1) + 1)]
        padded = {axis: length for axis, length in lengths.items() if axis in self.padded}
        found = [batch for group in groups for batch in self._cut(lengths, self._sorted(padded, group))]
        return (
            sorted(found, key=lambda batch: -max(length[batch].max() for length in lengths.values()))
            if lengths
            else found
        )

    def _sorted(self, padded: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        """Return rows of like lengths beside each other; of two axes, the second is sorted within slices of the first."""
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
        axes = np.stack([length[rows] for length in lengths.values()], axis=1).tolist() if lengths else [[]] * len(rows)
        start, largest, own = 0, [1] * len(lengths), 0
        for index, sizes in enumerate(axes):
            count = index - start
            together = [max(pair) for pair in zip(largest, sizes, strict=True)]
            cells = math.prod(max(1, size) for size in sizes)
            padding = count >= FEWEST and math.prod(together) * (count + 1) > PADDING * (own + cells)
            if count and (
                padding or count >= min(self.most, self._fewer.get(math.prod(together).bit_length(), self.most))
            ):
                yield rows[start:index]
                start, together, own = index, [max(1, size) for size in sizes], 0
            largest, own = together, own + cells
        if len(rows):
            yield rows[start:]


def _size(lengths: Mapping[str, int]) -> int:
    return math.prod(max(1, length) for length in lengths.values()).bit_length()
