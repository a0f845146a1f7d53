"""What is timed: models, and the sizes of a call of one; and random inputs for it. Imports no framework."""

from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]

TITLES = {
    "dot": "dot product", "additive": "additive", "multi-head": "multi-head", "block": "Transformer block",
    "stock block": "Transformer block of Keras's layers, unchanged", "dates": "date normaliser",
    "bert": "BERT, 4 layers, unchanged",
}  # fmt: skip
UNCHANGED = ("stock block", "bert")  # no layer of ours is in them
LENGTHS, QUERY_LENGTHS = "lengths", "length per query"
ALL_VALID, HALF_FILLED = "all valid", "half filled"
DATE_CHARACTERS = 30


@dataclass(frozen=True)
class Plan:
    """A model, for all batches and lengths; `_models.py` makes it with our layers and with Keras's own.

    Attributes:
        kind: A key of `TITLES`.
        D: Size of queries, keys and values; of additive scores also the number of units.
        H: Heads.
        lengths: `LENGTHS`, `QUERY_LENGTHS`, or empty where there are none.
        causal: Whether a query sees the keys up to its own place only.
        window: How many keys before and after its own place a query sees, or `None` for all.
        weights: Whether the attention weights are returned too.
    """

    kind: str
    D: int = 0
    H: int = 1
    lengths: str = LENGTHS
    causal: bool = False
    window: tuple[int, int] | None = None
    weights: bool = False

    def __str__(self) -> str:
        sizes = f" {'U' if self.kind == 'additive' else 'D'}{self.D}" if self.D and self.kind != "bert" else ""
        heads = f" H{self.H}" if self.kind in ("multi-head", "block", "stock block") else ""
        extras = {
            QUERY_LENGTHS: self.lengths == QUERY_LENGTHS, "causal": self.causal,
            f"window {self.window}": self.window, "returns weights": self.weights,
        }  # fmt: skip
        return ", ".join([f"{TITLES[self.kind]}{sizes}{heads}", *(name for name, there in extras.items() if there)])


@dataclass(frozen=True)
class Shape:
    """A call of a plan's model.

    Attributes:
        plan: The model.
        B: Batch.
        Tk: Keys.
        fill: How many of them take part: `ALL_VALID` or `HALF_FILLED`.
        Tq: Queries, where there are not as many as keys.
    """

    plan: Plan
    B: int
    Tk: int
    fill: str = ALL_VALID
    Tq: int = 0

    def __str__(self) -> str:
        """Return the name of the case in the results."""
        places = f"Tq{self.Tq} Tk{self.Tk}" if self.Tq else f"T{self.Tk}"
        return f"{self.plan}, B{self.B} {places}, {self.fill}"

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return self.Tq or self.Tk

    def inputs(self) -> Arrays:
        """Return normal numbers, random characters and words, and lengths: all keys, or half of them on average."""
        rng, plan, lengths = np.random.default_rng(0), self.plan, self._lengths((self.B,))
        places = (self.B, self.Tk)
        if plan.kind == "dates":
            characters, locale = rng.integers(2, 60, places), rng.integers(0, 38, self.B)
            return _integers(characters=characters, locale=locale, valid_lens=np.maximum(lengths, 4))
        if plan.kind == "bert":
            words, mask = rng.integers(0, 1000, places), np.arange(self.Tk) < lengths[:, None]
            return _integers(token_ids=words, segment_ids=np.zeros(places), padding_mask=mask)
        if plan.kind in ("block", "stock block"):
            return {"inputs": rng.standard_normal((*places, plan.D), "float32"), **_integers(valid_lens=lengths)}
        counts = {"queries": self.queries, "keys": self.Tk, "values": self.Tk}
        arrays = {name: rng.standard_normal((self.B, count, plan.D), "float32") for name, count in counts.items()}
        if plan.lengths == QUERY_LENGTHS:
            lengths = self._lengths((self.B, self.queries))
        return {**arrays, **_integers(valid_lens=lengths)} if plan.lengths else arrays

    def _lengths(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.Tk) if self.fill == ALL_VALID else spread(self.Tk, shape)


def spread(Tk: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return lengths spread evenly from few keys to nearly all."""
    return np.maximum(1, np.linspace(0, Tk, int(np.prod(shape)) + 2)[1:-1]).astype("int32").reshape(shape)


def _integers(**arrays: np.ndarray) -> Arrays:
    return {name: array.astype("int32") for name, array in arrays.items()}
