"""Masked normalizers: softmax, sparsemax and sigmoid.

Each normalizes scores `B + (Tq, Tk)` over the last axis and returns weights of the shape and dtype of the scores.
The mask is boolean and broadcasts to the scores, or is None. Weights are computed in float32 at least. Masked weights
are exactly zero, and so is the gradient of masked scores; all weights of a fully masked query are zero.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from .._shapes import at_least_float32, dtype_of
from .._types import Tensor
from .scores import max_with_floor


def softmax_where(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return softmax weights `B + (Tq, Tk)` of the unmasked scores `B + (Tq, Tk)`."""
    input_dtype = dtype_of(scores)
    scores = at_least_float32(scores)
    dtype = dtype_of(scores)
    if mask is None:
        return ops.cast(_softmax(scores), input_dtype)
    # The first selection removes masked scores from the sum. Its fill value is finite: with minus infinity a fully
    # masked row would be inf - inf. The second sets such rows to zero; both together make the gradient zero.
    weights = _softmax(ops.where(mask, scores, float(np.finfo(dtype).min)))
    return ops.cast(ops.where(mask, weights, 0.0), input_dtype)


def _softmax(scores: Tensor) -> Tensor:
    """Return the softmax of scores `(..., Tk)` over the last axis."""
    if scores.shape[-1] == 1:
        # `keras.ops.softmax` warns about an axis of size 1. The result is 1, or NaN for a NaN or infinite score.
        return ops.exp(scores - scores)
    if len(scores.shape) > 5:
        # TensorFlow's softmax supports at most 5 axes.
        shape = ops.shape(scores)
        return ops.reshape(ops.softmax(ops.reshape(scores, (math.prod(shape[:-1]), shape[-1])), axis=-1), shape)
    return ops.softmax(scores, axis=-1)


def sparsemax_where(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return sparsemax weights `B + (Tq, Tk)` of the unmasked scores: their Euclidean projection onto the simplex.

    `weights[j] = max(scores[j] - t, 0)`, with the threshold `t` for which a row sums to 1.

    Source: Martins and Astudillo 2016, equation 2 and algorithm 1.
    """
    input_dtype = dtype_of(scores)
    scores = at_least_float32(scores)
    dtype = dtype_of(scores)
    lowest = float(np.finfo(dtype).min)
    unmasked = scores if mask is None else ops.where(mask, scores, lowest)
    differences = scores - ops.stop_gradient(max_with_floor(unmasked, lowest))
    # Scores more than 1 below the largest score have weight zero, so -2 masks a score.
    differences = differences if mask is None else ops.where(mask, differences, -2.0)
    # The support (the positive weights) has no gradient. For a fixed support the threshold is a mean.
    support = ops.cast(ops.stop_gradient(differences) > _sparsemax_threshold(ops.stop_gradient(differences)), dtype)
    total = ops.sum(support * ops.maximum(differences, -1.0), -1, keepdims=True)
    threshold = (total - 1.0) / ops.sum(support, -1, keepdims=True)
    weights = support * ops.maximum(differences - threshold, 0.0)
    return ops.cast(weights if mask is None else ops.where(mask, weights, 0.0), input_dtype)


def _sparsemax_threshold(differences: Tensor) -> Tensor:
    """Return the threshold `B + (Tq, 1)` of rows of differences to the largest score, `B + (Tq, Tk)`."""
    # Values below -1 are outside of the support, and large ones would cost digits in the cumulative sum.
    differences = ops.maximum(differences, -2.0)
    descending = -ops.sort(-differences, axis=-1)
    counts = ops.cumsum(ops.ones_like(descending), axis=-1)
    in_support = ops.cast(1.0 + counts * descending > ops.cumsum(descending, axis=-1), dtype_of(differences))
    total = ops.sum(in_support * descending, axis=-1, keepdims=True)
    return (total - 1.0) / ops.sum(in_support, axis=-1, keepdims=True)


def sigmoid_where(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the logistic sigmoid, `B + (Tq, Tk)`, of every unmasked score; rows need not sum to 1."""
    input_dtype = dtype_of(scores)
    scores = at_least_float32(scores)
    weights = ops.sigmoid(scores if mask is None else ops.where(mask, scores, 0.0))
    return ops.cast(weights if mask is None else ops.where(mask, weights, 0.0), input_dtype)


SOFTMAX = "softmax"
NORMALIZERS: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    SOFTMAX: softmax_where,
    "sparsemax": sparsemax_where,
    "sigmoid": sigmoid_where,
}


def check_normalizer(normalizer: Any) -> str:
    """Return the name of a normalizer as a string; raise ValueError for an unknown name."""
    if not isinstance(normalizer, str) or normalizer not in NORMALIZERS:
        raise ValueError(f"`normalizer` must be one of {', '.join(NORMALIZERS)}. Received: normalizer={normalizer!r}.")
    return str(normalizer)
