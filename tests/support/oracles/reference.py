"""The oracle: attention pooling in float64 NumPy, in plain loops, independent of the tested code.

The oracle is slow, and defines the results of the layers. A masked key is never scored and a masked value is never
read, so NaN or infinity in masked entries cannot reach the result: masking a key is equal to deleting it.

Axes: `B` any number of leading axes, `Tq` queries, `Tk` keys, `Dq Dk Dv` sizes, `U` hidden units.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

PairScore = Callable[[np.ndarray, np.ndarray], float]
"""The score of one query (Dq,) and one key (Dk,)."""


def apply_softmax(scores: list[float]) -> list[float]:
    """Return the softmax of the scores of the unmasked keys; an empty list gives an empty list."""
    if not scores:
        return []
    largest = max(scores)
    powers = [float(np.exp(score - largest)) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def apply_sparsemax(scores: list[float]) -> list[float]:
    """Return the sparsemax of the scores of the unmasked keys: `max(score - t, 0)` with `t` such that the sum is 1."""
    for count in range(len(scores), 0, -1):  # the largest support whose smallest member stays positive
        support = sorted(scores, reverse=True)[:count]
        threshold = (sum(support) - 1) / count
        if support[-1] > threshold:
            return [max(score - threshold, 0.0) for score in scores]
    return []


def apply_sigmoid(scores: list[float]) -> list[float]:
    """Return the logistic sigmoid of each score."""
    return [float(np.exp(-np.logaddexp(0, -score))) for score in scores]


NORMALIZERS = {"softmax": apply_softmax, "sparsemax": apply_sparsemax, "sigmoid": apply_sigmoid}


def additive_score(
    W_q: np.ndarray, W_k: np.ndarray, w_v: np.ndarray, *, g: float | None = None, b: np.ndarray | None = None
) -> PairScore:
    """Return the score `w_v^T tanh(W_q q + W_k k)`, or with `g` and `b` `g w_v^T/||w_v|| tanh(W_q q + W_k k + b)`.

    W_q (Dq, U), W_k (Dk, U), w_v (U, 1), as `keras.layers.Dense` stores them.
    """
    W_q, W_k, w_v = (np.asarray(weight, "float64") for weight in (W_q, W_k, w_v))

    def score(query: np.ndarray, key: np.ndarray) -> float:
        total = length = 0.0
        for unit in range(w_v.shape[0]):
            hidden = sum(query[d] * W_q[d, unit] for d in range(len(query)))
            hidden += sum(key[d] * W_k[d, unit] for d in range(len(key)))
            total += w_v[unit, 0] * np.tanh(hidden if b is None else hidden + b[unit])
            length += w_v[unit, 0] ** 2
        return float(total if g is None else g * total / np.sqrt(length))

    return score


def bilinear_score(W: np.ndarray) -> PairScore:
    """Return the score `q^T W k`, W (Dq, Dk)."""
    W = np.asarray(W, "float64")

    def score(query: np.ndarray, key: np.ndarray) -> float:
        return float(sum(query[i] * W[i, j] * key[j] for i in range(len(query)) for j in range(len(key))))

    return score


def gaussian_score(bandwidth: float) -> PairScore:
    """Return the score `-||q - k||^2 / (2 h^2)`, h the bandwidth."""

    def score(query: np.ndarray, key: np.ndarray) -> float:
        return float(-sum((query[d] - key[d]) ** 2 for d in range(len(query))) / (2 * bandwidth**2))

    return score


def cosine_score(temperature: float) -> PairScore:
    """Return the score `q.k / (||q|| ||k|| T)`, T the temperature."""

    def score(query: np.ndarray, key: np.ndarray) -> float:
        product = sum(query[d] * key[d] for d in range(len(query)))
        lengths = np.sqrt(sum(query[d] ** 2 for d in range(len(query))) * sum(key[d] ** 2 for d in range(len(key))))
        return float(product / lengths / temperature)

    return score


def projected_score(W_q: np.ndarray, W_k: np.ndarray, score: PairScore) -> PairScore:
    """Return the score of the projections `q W_q` and `k W_k`."""
    return lambda query, key: score(query @ W_q, key @ W_k)


def scaled_dot_score(scale: float | None = None) -> PairScore:
    """Return the score `scale * q.k`, with `1/sqrt(D)` for `scale=None`."""

    def score(query: np.ndarray, key: np.ndarray) -> float:
        factor = 1.0 / np.sqrt(len(query)) if scale is None else scale
        return float(factor * sum(query[d] * key[d] for d in range(len(query))))

    return score


def compute_mask(
    leading: tuple[int, ...],
    Tq: int,
    Tk: int,
    *,
    valid_lens: np.ndarray | None = None,
    attention_mask: np.ndarray | None = None,
    segment_ids: tuple[np.ndarray, np.ndarray] | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    queries_mask: np.ndarray | None = None,
    keys_mask: np.ndarray | None = None,
    values_mask: np.ndarray | None = None,
) -> np.ndarray:
    """Return the intersection of all masks: boolean `B + (Tq, Tk)`, True if key j is unmasked for query i."""
    lengths = None if valid_lens is None else np.asarray(valid_lens)
    if lengths is not None and lengths.shape not in (leading, (*leading, Tq)):
        raise ValueError(f"valid_lens has shape {lengths.shape}; leading axes are {leading}, Tq is {Tq}")
    explicit = None if attention_mask is None else np.broadcast_to(attention_mask, (*leading, Tq, Tk))
    keep = np.zeros((*leading, Tq, Tk), dtype=bool)
    for b, i, j in _iterate_pairs(leading, Tq, Tk):
        conditions = [True]
        if lengths is not None:
            conditions.append(j < (lengths[b] if lengths.ndim == len(leading) else lengths[(*b, i)]))
        if explicit is not None:
            conditions.append(explicit[(*b, i, j)])
        if segment_ids is not None:
            query_segments, key_segments = segment_ids
            conditions.append(query_segments[(*b, i)] == key_segments[(*b, j)])
        if causal:
            conditions.append(j <= i)
        left, right = window
        if left is not None:
            conditions.append(i - j <= left)
        if right is not None:
            conditions.append(j - i <= right)
        if queries_mask is not None:
            conditions.append(queries_mask[(*b, i)])
        if keys_mask is not None:
            conditions.append(keys_mask[(*b, j)])
        if values_mask is not None:
            conditions.append(values_mask[(*b, j)])
        keep[(*b, i, j)] = all(conditions)
    return keep


def masked_softmax(
    scores: np.ndarray, valid_lens: np.ndarray | None = None, mask: np.ndarray | None = None
) -> np.ndarray:
    """Return the softmax over the last axis of scores `B + (Tq, Tk)`; masked weights and fully masked rows are 0."""
    scores = np.asarray(scores, "float64")
    *leading, Tq, Tk = scores.shape
    keep = compute_mask(tuple(leading), Tq, Tk, valid_lens=valid_lens, attention_mask=mask)
    weights = np.zeros(scores.shape)
    for b, i in _iterate_queries(tuple(leading), Tq):
        indices = [j for j in range(Tk) if keep[(*b, i, j)]]
        for j, weight in zip(indices, apply_softmax([float(scores[(*b, i, j)]) for j in indices]), strict=True):
            weights[(*b, i, j)] = weight
    return weights


def attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    score: PairScore,
    *,
    score_bias: np.ndarray | float = 0.0,
    normalizer: str = "softmax",
    **masks: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the output `B + (Tq, Dv)` and the weights `B + (Tq, Tk)`; masks are those of `compute_mask`."""
    queries, keys, values = (np.asarray(array, "float64") for array in (queries, keys, values))
    *leading, Tq, _ = queries.shape
    Tk, Dv = values.shape[-2:]
    bias = np.broadcast_to(np.asarray(score_bias, "float64"), (*leading, Tq, Tk))
    keep = compute_mask(tuple(leading), Tq, Tk, **masks)
    output = np.zeros((*leading, Tq, Dv))
    weights = np.zeros((*leading, Tq, Tk))
    for b, i in _iterate_queries(tuple(leading), Tq):
        indices = [j for j in range(Tk) if keep[(*b, i, j)]]
        row = NORMALIZERS[normalizer]([score(queries[(*b, i)], keys[(*b, j)]) + bias[(*b, i, j)] for j in indices])
        for j, weight in zip(indices, row, strict=True):
            weights[(*b, i, j)] = weight
            for d in range(Dv):
                output[(*b, i, d)] += weight * values[(*b, j, d)]
    return output, weights


def _iterate_queries(leading: tuple[int, ...], Tq: int) -> Iterator[tuple[tuple[int, ...], int]]:
    for b in np.ndindex(*leading):
        for i in range(Tq):
            yield b, i


def _iterate_pairs(leading: tuple[int, ...], Tq: int, Tk: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    for b, i in _iterate_queries(leading, Tq):
        for j in range(Tk):
            yield b, i, j
