"""Masked normalizers: softmax, sparsemax and sigmoid.

Each maps scores `B + (Tq, Tk)` and a mask (booleans that broadcast to them, or None) to weights of their shape and
dtype: computed in float32 at least, exactly zero where the mask is False, and so zero in a row without any key.
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
    """Softmax over the last axis of the scores where `mask` is True; exact zeros elsewhere.

    The first selection keeps masked scores out of the sum, the second makes rows without any key zero, and both
    together keep their gradient zero. The fill is finite, so that such a row is never computed as inf - inf.
    """
    input_dtype = dtype_of(scores)
    scores = at_least_float32(scores)
    dtype = dtype_of(scores)
    if mask is None:
        return ops.cast(_softmax(scores), input_dtype)
    weights = _softmax(ops.where(mask, scores, float(np.finfo(dtype).min)))
    return ops.cast(ops.where(mask, weights, 0.0), input_dtype)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis, in silence where that has a single entry: one key is no mistake here.

    `keras.ops.softmax` warns of it, since a classifier with one class would be one.
    """
    if scores.shape[-1] == 1:
        return ops.exp(scores - scores)  # 1, and NaN where the score is NaN or infinite
    if len(scores.shape) > 5:  # TensorFlow's softmax takes no more axes
        shape = ops.shape(scores)
        return ops.reshape(ops.softmax(ops.reshape(scores, (math.prod(shape[:-1]), shape[-1])), axis=-1), shape)
    return ops.softmax(scores, axis=-1)


def sparsemax_where(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Sparsemax over the last axis of the scores where `mask` is True: the nearest point of the simplex.

    `weights[j] = max(scores[j] - t, 0)`, with the `t` for which they sum to 1. A score more than 1 below the largest
    of its row thus has weight zero, whatever else is there: masked ones are moved there.

    Source: Martins and Astudillo 2016, equation 2 and algorithm 1.
    """
    input_dtype = dtype_of(scores)
    scores = at_least_float32(scores)
    dtype = dtype_of(scores)
    lowest = float(np.finfo(dtype).min)
    unmasked = scores if mask is None else ops.where(mask, scores, lowest)
    differences = scores - ops.stop_gradient(max_with_floor(unmasked, lowest))
    differences = differences if mask is None else ops.where(mask, differences, -2.0)
    # Which weights are positive is decided without a gradient; given that, the threshold is a plain mean.
    support = ops.cast(ops.stop_gradient(differences) > _sparsemax_threshold(ops.stop_gradient(differences)), dtype)
    threshold = (ops.sum(support * ops.maximum(differences, -1.0), -1, keepdims=True) - 1.0) / ops.sum(
        support, -1, keepdims=True
    )
    weights = support * ops.maximum(differences - threshold, 0.0)
    return ops.cast(weights if mask is None else ops.where(mask, weights, 0.0), input_dtype)


def _sparsemax_threshold(differences: Tensor) -> Tensor:
    """The threshold of each row, `B + (Tq, 1)`, of gaps to its largest score."""
    differences = ops.maximum(differences, -2.0)  # below -1 all are alike, and sums of large ones would lose digits
    descending = -ops.sort(-differences, axis=-1)
    counts = ops.cumsum(ops.ones_like(descending), axis=-1)
    in_support = ops.cast(1.0 + counts * descending > ops.cumsum(descending, axis=-1), dtype_of(differences))
    return (ops.sum(in_support * descending, axis=-1, keepdims=True) - 1.0) / ops.sum(
        in_support, axis=-1, keepdims=True
    )


def sigmoid_where(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Logistic sigmoid of each score where `mask` is True: weights that do not compete, and need not sum to 1."""
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
    """Returns the name of a normalizer."""
    if not isinstance(normalizer, str) or normalizer not in NORMALIZERS:
        raise ValueError(f"`normalizer` must be one of {', '.join(NORMALIZERS)}. Received: normalizer={normalizer!r}.")
    return str(normalizer)
