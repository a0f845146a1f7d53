"""Rows put together for one run, padded with zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .._standalone.verify import Arrays, Manifest
from .columns import blank
from .windows import Window


def longest_of(manifest: Manifest, window: Window, rows: np.ndarray, padded: frozenset[str]) -> dict[str, int]:
    """Return how long rows are together, by axis: the longest of them, and what the model takes if it may be padded."""
    longest = {axis: int(length[rows].max(initial=0)) for axis, length in window.lengths.items()}
    return {axis: padded_size(manifest, axis, size) if axis in padded else size for axis, size in longest.items()}


def padded_size(manifest: Manifest, axis: str, size: int) -> int:
    """Return the least size of an axis that the model takes, of `size` or more."""
    step = manifest.multiples.get(axis, 1)
    return -(-max(size, 1) // step) * step  # no model is checked on an axis of size 0


def feeds_of(manifest: Manifest, window: Window, rows: np.ndarray, longest: Mapping[str, int]) -> Arrays:
    """Return the inputs of rows, as long as is said."""
    feeds = {}
    for spec in manifest.inputs:
        ragged = window.inputs[spec.name]
        shape = [size if isinstance(size, int) else longest[size] for size in spec.shape[1:]]
        if not shape:
            feeds[spec.name] = ragged.values[ragged.starts[rows]]
            continue
        padded = blank((len(rows), *shape), spec.dtype)
        sizes, starts, ends = ragged.sizes[rows], ragged.starts[rows].tolist(), ragged.starts[rows + 1].tolist()
        if comes_first(sizes, shape):
            for own, start, end in zip(padded.reshape(len(rows), -1), starts, ends, strict=True):
                own[: end - start] = ragged.values[start:end]
        else:
            for own, size, start, end in zip(padded, sizes.tolist(), starts, ends, strict=True):
                own[tuple(map(slice, size))] = ragged.values[start:end].reshape(size)
        feeds[spec.name] = padded
    return feeds


def feeds_alone(manifest: Manifest, window: Window, row: int, more: str | None = None) -> Arrays:
    """Return the inputs of a row, no longer than they must be; along the axis `more`, more than twice as long."""
    longest = {axis: int(length[row]) for axis, length in window.lengths.items()}
    for axis in {*manifest.multiples} & {*longest}:
        longest[axis] = padded_size(manifest, axis, longest[axis])
    if more is not None:
        longest[more] = padded_size(manifest, more, 2 * longest[more] + 1)
    return feeds_of(manifest, window, np.array([row]), longest)


def comes_first(sizes: np.ndarray, shape: Sequence[int]) -> bool:
    """Tell whether rows of these sizes, padded to one shape, are all padding behind what they hold: a slice, not a box.

    So it is where only the first axis differs, but for those that are 1.
    """
    behind = next((axis for axis, size in enumerate(shape) if size != 1), 0) + 1
    return bool((sizes[:, behind:] == list(shape[behind:])).all() and (sizes[:, : behind - 1] == 1).all())
