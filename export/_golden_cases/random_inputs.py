"""Random input arrays: ids, masks and floats, with padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class IdRange:
    """Range of integers for which every lookup has a row."""

    low: int
    high: int
    skips_zero: bool = False  # zero is padding, as for an `Embedding` with `mask_zero`

    def __and__(self, other: IdRange) -> IdRange:
        """Return the intersection of two ranges."""
        return IdRange(max(self.low, other.low), min(self.high, other.high), self.skips_zero or other.skips_zero)

    @property
    def has_padding(self) -> bool:
        """Return True if zero is padding and the range has other ids."""
        return self.skips_zero and self.low <= 0 < self.high

    @property
    def drawn_ids(self) -> range:
        """Return the ids to draw: all except padding."""
        return range(max(self.low, 1) if self.has_padding else self.low, self.high + 1)


@dataclass
class IdSampler:
    """Sampler of ids without replacement; after all ids, they are shuffled again."""

    id_range: IdRange
    _remaining: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def draw(self, shape: Shape, rng: np.random.Generator) -> np.ndarray:
        """Return int64 ids; some rows end with zeros if zero is padding."""
        has_padding = self.id_range.has_padding and len(shape) > 1
        steps = draw_step_mask(shape[:2], rng) if has_padding else np.ones(shape[:2], bool)
        is_id = np.broadcast_to(steps.reshape(steps.shape + (1,) * (len(shape) - 2)), shape)
        ids = np.zeros(shape, np.int64)
        ids[is_id] = self._draw_next(int(np.count_nonzero(is_id)), rng)
        return ids

    def _draw_next(self, count: int, rng: np.random.Generator) -> np.ndarray:
        all_ids = np.arange(self.id_range.drawn_ids.start, self.id_range.drawn_ids.stop)
        rounds = math.ceil(max(count - len(self._remaining), 0) / len(all_ids))
        ids = np.concatenate([self._remaining, rng.permuted(np.tile(all_ids, (rounds, 1)), axis=1).ravel()])
        self._remaining = ids[count:]
        return ids[:count]


def draw_step_mask(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return a mask (B, T) that is False for padding: at the end of every other row, after at least one step."""
    batch, steps = shape
    lengths = rng.integers(1, max(steps, 2), batch)  # less than `steps`, except for a single step
    lengths[int(rng.integers(0, 2)) :: 2] = steps
    return np.arange(steps) < lengths[:, np.newaxis]


def draw_mask(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return `draw_step_mask` for shape (B, T), else booleans with probability 1/2, the first of each row True."""
    if len(shape) == 2 and shape[-1] > 1:
        return draw_step_mask(shape, rng)
    mask = rng.random(shape) < 0.5
    if shape and shape[-1] > 1:
        mask[..., 0] = True  # most layers divide 0 by 0 in a fully masked row
    return mask


def draw_normal(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return floats of a standard normal distribution."""
    return rng.standard_normal(shape)


def draw_normal_around(shape: Shape, rng: np.random.Generator, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return floats of a normal distribution with mean and deviation, standard if they do not broadcast to `shape`."""
    standard = draw_normal(shape, rng)
    scaled = standard * deviation + mean
    return scaled if scaled.shape == standard.shape else standard


def draw_padded(shape: Shape, rng: np.random.Generator, fill: float) -> np.ndarray:
    """Return floats of a normal distribution, shape (B, T, ...); some rows end with steps filled with `fill`."""
    array = draw_normal(shape, rng)
    if len(shape) > 1:
        array[~draw_step_mask(shape[:2], rng)] = fill
    return array


def move_padding(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (B, T, ...) with the steps of even rows reversed, so that padding is first, and of odd rows shuffled."""
    result = array[:, ::-1].copy()
    for row in range(1, len(array), 2):
        result[row] = array[row, rng.permutation(array.shape[1])]
    return result


def resize(sample: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the sample cropped to `shape`, or repeated from its start."""
    for axis, size in enumerate(shape):
        sample = np.take(sample, np.arange(size), axis=axis, mode="wrap")
    return sample
