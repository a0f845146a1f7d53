"""What a layer must give, in float64: tests/reference.py, and heads around it. NumPy alone."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import reference

from .kinds import ADDITIVE, BILINEAR, COSINE, DOT, GAUSSIAN, Arrays, Kind
from .masks import call_arguments


class Expected(NamedTuple):
    """What comes out of a call.

    Attributes:
        output: `(B, Tq, Dv)` or `(B, Tq, Do)`.
        weights: `(B, Tq, Tk)`, with heads `(B, H, Tq, Tk)`.
        keep: Which pairs take part, `(B, Tq, Tk)`.
    """

    output: np.ndarray
    weights: np.ndarray
    keep: np.ndarray


class Oracle:
    """A layer on one draw of inputs: each pair of query and key is scored once, whatever the masks."""

    def __init__(self, kind: Kind, weights: Arrays, arrays: Arrays) -> None:
        self.kind, self.arrays = kind, arrays
        self.weights = {name: array.astype("float64") for name, array in weights.items()}
        sequences = [arrays[name].astype("float64") for name in ("queries", "keys", "values")]
        if kind.heads is None:
            self.heads = [_Head(_score(kind, self.weights), *sequences)]
        else:
            self.heads = [self._head(h, *sequences) for h in range(kind.heads[0])]

    def expected(self, mask: str) -> Expected:
        """The output and the weights under a mask."""
        given = call_arguments(mask, self.arrays, self.kind)
        bias = given.pop("score_bias", None)
        B, Tq, Tk = *self.arrays["queries"].shape[:2], self.arrays["keys"].shape[1]
        keep = reference.takes_part((B,), Tq, Tk, **given)
        pairs = []
        for h, head in enumerate(self.heads):
            own = 0.0 if bias is None else bias if bias.ndim == 3 else bias[:, h]
            pairs.append(head.attend(keep, own, self.kind.normalizer))
        if self.kind.heads is None:
            return Expected(*pairs[0], keep)
        joined = np.concatenate([output for output, _ in pairs], axis=-1)
        output = joined @ self.weights["W_o"] + self.weights["W_o_bias"]
        return Expected(
            np.where(keep.any(-1)[..., None], output, 0.0), np.stack([weights for _, weights in pairs], axis=1), keep
        )

    def _head(self, h: int, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> "_Head":
        assert self.kind.heads is not None
        H, G = self.kind.heads
        group = h // (H // G)
        projected = [
            self._projected(name, array, index)
            for name, array, index in (("W_q", queries, h), ("W_k", keys, group), ("W_v", values, group))
        ]
        return _Head(_score(self.kind, self.weights), *projected)

    def _projected(self, name: str, array: np.ndarray, index: int) -> np.ndarray:
        part = slice(index * self.kind.K, (index + 1) * self.kind.K)
        projected: np.ndarray = array @ self.weights[name][:, part] + self.weights[f"{name}_bias"][part]
        return projected


class _Head:
    """The attention of one head; it remembers the scores of pairs, by the number of the query and of the key."""

    def __init__(self, score: reference.PairScore, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
        self.score, self.values, self.known = score, values, dict[tuple[int, int], float]()
        self.queries, self.keys = queries.reshape(-1, queries.shape[-1]), keys.reshape(-1, keys.shape[-1])
        self.numbers = [
            np.arange(len(each)).reshape(*array.shape[:2], 1)
            for each, array in ((self.queries, queries), (self.keys, keys))
        ]

    def attend(self, keep: np.ndarray, bias: np.ndarray | float, normalizer: str) -> tuple[np.ndarray, np.ndarray]:
        return reference.attention(
            *self.numbers, self.values, self._known, attention_mask=keep, score_bias=bias, normalizer=normalizer
        )

    def _known(self, query: np.ndarray, key: np.ndarray) -> float:
        pair = int(query[0]), int(key[0])
        if pair not in self.known:
            self.known[pair] = self.score(self.queries[pair[0]], self.keys[pair[1]])
        return self.known[pair]


def _score(kind: Kind, weights: Mapping[str, np.ndarray]) -> reference.PairScore:
    if kind.score == ADDITIVE:
        return reference.additive_score(weights["W_q"], weights["W_k"], weights["w_v"])
    return {
        DOT: lambda: reference.scaled_dot_score(),
        BILINEAR: lambda: reference.bilinear_score(weights["W"]),
        GAUSSIAN: lambda: reference.gaussian_score(float(weights["bandwidth"])),
        COSINE: lambda: reference.cosine_score(float(weights["temperature"])),
    }[kind.score]()
