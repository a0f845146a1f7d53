"""The outputs of a window, without padding; and what rounding may do to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._standalone.verify import Spec
from .columns import blank, to_lists
from .feeds import comes_first
from .windows import Window, output_sizes

# What rounding does, by precision, as a share of the largest number of a channel: among others, sums are added up in
# another order. What padding does to a model that does not expect it is more: a mean over twice as many is half.
ROUNDING = {"float32": 1e-4, "float16": 2e-2, "int8": 5e-2}


class Results:
    """The outputs of a window, into which threads put those of their rows."""

    def __init__(self, specs: list[Spec], window: Window, start: int, stop: int) -> None:
        """Make room for rows from `start` to before `stop`."""
        self.start, self.problems = start, {row: why for row, why in window.problems.items() if start <= row < stop}
        self._sizes = [output_sizes(spec, window)[start:stop] for spec in specs]
        for sizes in self._sizes:
            sizes[list(row - start for row in self.problems)] = 0
        self._apart = [bool((sizes < 0).any()) for sizes in self._sizes]  # how large, only the model knows
        self._rows: list[dict[int, np.ndarray]] = [{} for _ in specs]
        counts = [np.prod(sizes, axis=1, dtype=np.int64) for sizes in self._sizes]
        self._starts = [np.concatenate([[0], np.cumsum(count)]) for count in counts]
        self._values = [
            blank(0 if apart else starts[-1], spec.dtype)
            for spec, apart, starts in zip(specs, self._apart, self._starts, strict=True)
        ]

    def put(self, rows: np.ndarray, outputs: list[np.ndarray]) -> None:
        """Keep the outputs of rows of the window, without padding."""
        for number, output in enumerate(outputs):
            places = rows - self.start
            sizes, starts, values = self._sizes[number][places], self._starts[number], self._values[number]
            begins, ends = starts[places].tolist(), starts[places + 1].tolist()
            if self._apart[number]:
                for own, place, size in zip(output, places.tolist(), sizes, strict=True):
                    self._rows[number][place] = without_padding(own, size).copy()
            elif comes_first(sizes, output.shape[1:]):
                for own, begin, end in zip(output.reshape(len(rows), -1), begins, ends, strict=True):
                    values[begin:end] = own[: end - begin]
            else:
                for own, begin, end, size in zip(output, begins, ends, sizes, strict=True):
                    values[begin:end].reshape(size)[...] = without_padding(own, size)

    def row(self, number: int, row: int) -> np.ndarray:
        """Return an output of a row of the window that has run."""
        place = row - self.start
        if self._apart[number]:
            return self._rows[number][place]
        begin, end = self._starts[number][place : place + 2]
        own: np.ndarray = self._values[number][begin:end].reshape(self._sizes[number][place])
        return own

    def sizes_of_channels(self, number: int, spec: Spec) -> np.ndarray:
        """Return the largest number of each channel of an output, over all rows."""
        if self._apart[number]:
            values = np.concatenate([output.ravel() for output in self._rows[number].values()])
            return sizes_of_channels(values, spec)
        return sizes_of_channels(self._values[number], spec)

    def columns(self) -> list[Any]:
        """Return a `pyarrow.Array` for each output; rows with a problem are in it, with anything."""
        return [self._column(number) for number in range(len(self._sizes))]

    def _column(self, number: int) -> Any:
        sizes, values = self._sizes[number], self._values[number]
        if self._apart[number]:
            found = self._rows[number]
            sizes = np.stack([found[row].shape if row in found else (0,) * sizes.shape[1] for row in range(len(sizes))])
            values = np.concatenate([values, *(found[row].ravel() for row in sorted(found))])
        return to_lists(values, sizes)


def without_padding(output: np.ndarray | str, sizes: np.ndarray) -> np.ndarray:
    """Return what belongs to a row: `sizes` of each axis, all of it where that is -1."""
    if isinstance(output, str):  # NumPy gives a number that has arithmetic, but a string as it is
        return np.array(output, object)
    return output[tuple(slice(size if size >= 0 else None) for size in sizes)]


def sizes_of_channels(output: np.ndarray, spec: Spec) -> np.ndarray:
    """Return the largest number of each channel, which is an index of the last axis if that is of a fixed size."""
    if output.dtype == object:
        return np.zeros(1)
    shape = spec.shape
    channels = shape[-1] if len(shape) > 1 and isinstance(shape[-1], int) else 1
    flat = np.abs(output.reshape(-1, max(1, channels)))
    largest: np.ndarray = np.max(flat, axis=0, initial=0.0, where=np.isfinite(flat))
    return largest


def rounding_of(sizes: np.ndarray, precision: str) -> np.ndarray:
    """Return what rounding may do to an output of a row, by channel.

    Args:
        sizes: What `sizes_of_channels` gives of it and of others like it.
        precision: That of the bundle.
    """
    return ROUNDING.get(precision, 0.0) * sizes.astype(np.float64)
