"""What is attended to: sizes of a call, lengths, and random inputs for it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

ADDITIVE, DOT = "additive", "dot"
ALL_VALID, HALF_FILLED = "all valid", "half filled"


@dataclass(frozen=True)
class Size:
    """One call of one layer.

    Attributes:
        layer: `ADDITIVE` or `DOT`.
        B: Batch.
        Tq: Queries.
        Tk: Keys.
        D: Size of queries, keys and values.
        U: Hidden units of additive attention.
        per_query: Whether `valid_lens` has a length for each query, (B, Tq), instead of one for each row, (B,).
        causal: Whether a query sees the keys up to its own place only.
        weights: Whether the attention weights are returned too.
    """

    layer: str
    B: int
    Tq: int
    Tk: int
    D: int
    U: int = 0
    per_query: bool = False
    causal: bool = False
    weights: bool = False

    def __str__(self) -> str:
        places = f"T{self.Tk}" if self.Tq == self.Tk else f"Tq{self.Tq} Tk{self.Tk}"
        units = f"U{self.U}" if self.layer == ADDITIVE else f"D{self.D}"
        extras = {"length per query": self.per_query, "causal": self.causal, "returns weights": self.weights}
        return ", ".join([f"B{self.B} {places} {units}", *(name for name, asked in extras.items() if asked)])

    @property
    def elements(self) -> int:
        """How many numbers the features (additive) or the scores (dot product) are."""
        return self.B * self.Tq * self.Tk * max(self.U, 1)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def lengths(size: Size, fill: str) -> np.ndarray:
    """Return how many keys take part: all, or spread evenly around half of them."""
    shape = (size.B, size.Tq) if size.per_query else (size.B,)
    if fill == ALL_VALID:
        return np.full(shape, size.Tk, "int32")
    count = int(np.prod(shape))
    spread = np.maximum(1, np.linspace(0, size.Tk, count + 2)[1:-1])
    return spread.astype("int32").reshape(shape)


def random_inputs(size: Size, fill: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return normal queries, keys and values, never zeros, and the lengths."""
    rng = np.random.default_rng(seed)
    shapes = {"queries": (size.B, size.Tq), "keys": (size.B, size.Tk), "values": (size.B, size.Tk)}
    arrays = {name: rng.standard_normal((*shape, size.D), dtype="float32") for name, shape in shapes.items()}
    return {**arrays, "valid_lens": lengths(size, fill)}
