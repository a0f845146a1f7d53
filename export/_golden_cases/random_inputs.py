"""Draw random input arrays: ids, masks and floats, with padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class IdRange:
    """Range of whole numbers for which every lookup has a row."""

    low: int
    high: int
    skips_zero: bool = False  # whether zero is padding, as for an `Embedding` with `mask_zero`

    def __and__(self, other: IdRange) -> IdRange:
        """Return what both may hold."""
        return IdRange(max(self.low, other.low), min(self.high, other.high), self.skips_zero or other.skips_zero)

    @property
    def has_padding(self) -> bool:
        """Whether zero stands for padding and there is another number to be padded."""
        return self.skips_zero and self.low <= 0 < self.high

    @property
    def drawn_ids(self) -> range:
        """The numbers that are drawn: all but the padding."""
        return range(max(self.low, 1) if self.has_padding else self.low, self.high + 1)


@dataclass
class IdSampler:
    """Draws ids as cards are dealt: none comes again before all have come, and each time in another order."""

    id_range: IdRange
    _remaining: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def draw(self, shape: Shape, rng: np.random.Generator) -> np.ndarray:
        """Return ids; where zero is padding, some rows end with it."""
        steps = (
            draw_step_mask(shape[:2], rng) if self.id_range.has_padding and len(shape) > 1 else np.ones(shape[:2], bool)
        )
        kept = np.broadcast_to(steps.reshape(steps.shape + (1,) * (len(shape) - 2)), shape)
        drawn = np.zeros(shape, np.int64)
        drawn[kept] = self._draw_next(int(np.count_nonzero(kept)), rng)
        return drawn

    def _draw_next(self, count: int, rng: np.random.Generator) -> np.ndarray:
        cards = np.arange(self.id_range.drawn_ids.start, self.id_range.drawn_ids.stop)
        rounds = math.ceil(max(count - len(self._remaining), 0) / len(cards))
        dealt = np.concatenate([self._remaining, rng.permuted(np.tile(cards, (rounds, 1)), axis=1).ravel()])
        self._remaining = dealt[count:]
        return dealt[:count]


def draw_step_mask(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return for (B, T) True where a step is no padding: it stands at the end, in every other row, and never alone."""
    batch, steps = shape
    lengths = rng.integers(1, max(steps, 2), batch)  # below `steps`, but for a single one
    lengths[int(rng.integers(0, 2)) :: 2] = steps
    return np.arange(steps) < lengths[:, np.newaxis]


def draw_mask(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return ones and zeros: those of `kept_steps` for (B, T), at even odds for any other shape, the first a one."""
    if len(shape) == 2 and shape[-1] > 1:
        return draw_step_mask(shape, rng)
    drawn = rng.random(shape) < 0.5
    if shape and shape[-1] > 1:
        drawn[..., 0] = True  # a row without any 1 would make most layers divide nothing by nothing
    return drawn


def draw_normal(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return floats of a normal distribution."""
    return rng.standard_normal(shape)


def draw_normal_around(shape: Shape, rng: np.random.Generator, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return floats of a normal distribution with mean and deviation, if these broadcast to the shape."""
    drawn = draw_normal(shape, rng)
    scaled = drawn * deviation + mean
    return scaled if scaled.shape == drawn.shape else drawn


def draw_padded_normal(shape: Shape, rng: np.random.Generator, fill: float) -> np.ndarray:
    """Return floats of a normal distribution, of shape (B, T, ...); some rows end with steps full of `fill`."""
    drawn = draw_normal(shape, rng)
    if len(shape) > 1:
        drawn[~draw_step_mask(shape[:2], rng)] = fill
    return drawn


def move_padding(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (B, T, ...) with its padding at the start of even rows, and anywhere in the others."""
    moved = array[:, ::-1].copy()
    for row in range(1, len(array), 2):
        moved[row] = array[row, rng.permutation(array.shape[1])]
    return moved


def resize(sample: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the sample cropped, or repeated from its start, to `shape`."""
    for axis, size in enumerate(shape):
        sample = np.take(sample, np.arange(size), axis=axis, mode="wrap")
    return sample
