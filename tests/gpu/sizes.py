"""What is timed: sizes of calls, and inputs for them. NumPy alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .kinds import Arrays, Kind
from .masks import SEQUENCES, shape_of

ALL, HALF = "all", "half"
FILLS = (ALL, HALF)
MOST_ON_CPU = 2**27  # scores, of additive ones as often as they have units


class Size(NamedTuple):
    """A call with as many queries as keys."""

    B: int
    T: int

    def __str__(self) -> str:
        return f"B{self.B} T{self.T}"


FULL = {
    "additive U256": (Size(8, 128), Size(2, 512)),
    "additive U512": (Size(16, 1024),),
    "dot D64": (Size(8, 512), Size(4, 4096)),
    "multi-head 8x64": (Size(8, 512), Size(4, 4096)),
    "multi-head 8x64 causal": (Size(8, 512), Size(4, 4096)),
}
QUICK = (Size(2, 16),)


def sizes_of(layer: str, *, quick: bool) -> Sequence[Size]:
    return QUICK if quick else FULL[layer]


def elements(kind: Kind, size: Size) -> int:
    """How many numbers the scores are, or of additive attention the features."""
    return size.B * size.T**2 * max(kind.U, 1) * (kind.heads or (1,))[0]


def inputs_of(kind: Kind, size: Size, fill: str) -> Arrays:
    """Normal numbers, never zeros, and lengths: all keys, or spread evenly around half of them."""
    rng = np.random.default_rng([size.B, size.T])
    arrays = {
        name: rng.standard_normal(shape_of(name, kind, size.B, size.T, size.T), dtype="float32") for name in SEQUENCES
    }
    spread = np.linspace(0, size.T, size.B + 2)[1:-1]
    lengths = np.full(size.B, size.T) if fill == ALL else np.maximum(1, spread)
    return {**arrays, "valid_lens": lengths.astype("int32")}


def part_of(output: np.ndarray) -> np.ndarray:
    """Some of the rows of an output, for comparing: all of a small one."""
    return np.ascontiguousarray(output[:, :: max(1, output.shape[1] // 32)])
