"""Descriptions of the benchmarked models (plans) and of their calls, with random inputs. Imports no framework."""

from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]

TITLES = {
    "dot": "dot product", "additive": "additive", "multi-head": "multi-head", "block": "Transformer block",
    "stock block": "Transformer block of Keras's layers, unchanged", "dates": "date normaliser",
    "bert": "BERT, 4 layers, unchanged",
}  # fmt: skip
UNCHANGED = ("stock block", "bert")  # kinds of models that have no layers of this package
LENGTHS, QUERY_LENGTHS = "lengths", "length per query"
ALL_VALID, HALF_FILLED = "all valid", "half filled"
DATE_CHARACTERS = 30


@dataclass(frozen=True)
class Plan:
    """Description of a model, which accepts any batch size and length.

    `_models.py` builds the model of a plan from layers of this package or of Keras.

    Attributes:
        kind: A key of `TITLES`.
        D: Size of queries, keys and values; for additive scores also the number of units.
        H: Number of heads.
        length_kind: Kind of `valid_lens`: `LENGTHS` per example, `QUERY_LENGTHS` per query, or "" for no such input.
        causal: True if attention is causal.
        window: Numbers of keys in the window before and after a query, or `None`.
        returns_weights: True if the attention weights are returned.
    """

    kind: str
    D: int = 0
    H: int = 1
    length_kind: str = LENGTHS
    causal: bool = False
    window: tuple[int, int] | None = None
    returns_weights: bool = False

    def __str__(self) -> str:
        sizes = f" {'U' if self.kind == 'additive' else 'D'}{self.D}" if self.D and self.kind != "bert" else ""
        heads = f" H{self.H}" if self.kind in ("multi-head", "block", "stock block") else ""
        extras = {
            QUERY_LENGTHS: self.length_kind == QUERY_LENGTHS, "causal": self.causal,
            f"window {self.window}": self.window, "returns weights": self.returns_weights,
        }  # fmt: skip
        return ", ".join([f"{TITLES[self.kind]}{sizes}{heads}", *(name for name, is_set in extras.items() if is_set)])


@dataclass(frozen=True)
class PlannedCall:
    """Call of a model, with its sizes.

    Attributes:
        plan: Description of the model.
        B: Batch size.
        Tk: Number of keys.
        valid_share: Which keys are valid: `ALL_VALID`, or `HALF_FILLED` for valid lengths of Tk / 2 on average.
        Tq: Number of queries; 0 means Tk.
    """

    plan: Plan
    B: int
    Tk: int
    valid_share: str = ALL_VALID
    Tq: int = 0

    def __str__(self) -> str:
        """Return the name of the case in the results."""
        sizes = f"Tq{self.Tq} Tk{self.Tk}" if self.Tq else f"T{self.Tk}"
        return f"{self.plan}, B{self.B} {sizes}, {self.valid_share}"

    @property
    def query_count(self) -> int:
        """Number of queries."""
        return self.Tq or self.Tk

    def make_inputs(self) -> Arrays:
        """Return inputs by name: floats with a normal distribution, random ids, and valid lengths by `valid_share`."""
        rng, plan, lengths = np.random.default_rng(0), self.plan, self._make_lengths((self.B,))
        shape = (self.B, self.Tk)
        if plan.kind == "dates":
            characters, locale = rng.integers(2, 60, shape), rng.integers(0, 38, self.B)
            return _to_int32(characters=characters, locale=locale, valid_lens=np.maximum(lengths, 4))
        if plan.kind == "bert":
            token_ids, mask = rng.integers(0, 1000, shape), np.arange(self.Tk) < lengths[:, None]
            return _to_int32(token_ids=token_ids, segment_ids=np.zeros(shape), padding_mask=mask)
        if plan.kind in ("block", "stock block"):
            return {"inputs": rng.standard_normal((*shape, plan.D), "float32"), **_to_int32(valid_lens=lengths)}
        counts = {"queries": self.query_count, "keys": self.Tk, "values": self.Tk}
        arrays = {name: rng.standard_normal((self.B, count, plan.D), "float32") for name, count in counts.items()}
        if plan.length_kind == QUERY_LENGTHS:
            lengths = self._make_lengths((self.B, self.query_count))
        return {**arrays, **_to_int32(valid_lens=lengths)} if plan.length_kind else arrays

    def _make_lengths(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.Tk) if self.valid_share == ALL_VALID else spread_lengths(self.Tk, shape)


def spread_lengths(Tk: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return int32 lengths of a shape, spread evenly between 1 and Tk."""
    return np.maximum(1, np.linspace(0, Tk, int(np.prod(shape)) + 2)[1:-1]).astype("int32").reshape(shape)


def _to_int32(**arrays: np.ndarray) -> Arrays:
    return {name: array.astype("int32") for name, array in arrays.items()}
