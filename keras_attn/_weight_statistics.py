"""Statistics of attention weights: entropy and attention coverage."""

from typing import Any

from keras import ops

from ._checks.call_arguments import check_attention_mask, check_scores
from ._keras.build_placeholders import convert_mask
from ._shapes import as_tensor, at_least_float32, shape_of
from ._types import Tensor


def attention_entropy(weights: Tensor, *, mask: Any = None) -> Tensor:
    """Compute the entropy of the weights of each query, in nats: 0 for a single key, `log n` for n equal keys.

    `-sum_j w_j log w_j`, with `0 log 0 = 0`. A fully masked query has entropy 0.

    Args:
        weights: Floats, `(..., Tq, Tk)`, as a layer returns them with `return_attention_scores=True`.
        mask: Booleans that broadcast to the weights, False for weights to exclude; the remaining weights are divided by
            their sum. None if masked weights are zero.

    Returns:
        Floats, `(..., Tq)`, in float32 at least.

    Raises:
        TypeError: If the weights are not floats or the mask is not boolean.
        ValueError: If the mask does not broadcast to the weights.
    """
    masked_weights = _zero_masked_weights(weights, mask)
    sums = ops.sum(masked_weights, axis=-1, keepdims=True)
    probabilities = masked_weights / ops.where(sums > 0, sums, 1.0)
    # `0.0 - x` and not `-x`, which is -0.0 for a single key.
    return 0.0 - ops.sum(probabilities * ops.log(ops.where(probabilities > 0, probabilities, 1.0)), axis=-1)


def coverage(weights: Tensor, *, mask: Any = None) -> Tensor:
    """Compute the attention coverage of each key: the sum of its weights over the queries.

    Queries that are padding must be masked, in the layer (`queries_mask`) or here.

    Args:
        weights: Floats, `(..., Tq, Tk)`, as a layer returns them with `return_attention_scores=True`.
        mask: Booleans that broadcast to the weights, False for pairs to exclude; or None.

    Returns:
        Floats, `(..., Tk)`, in float32 at least. They sum to the number of queries that are not fully masked.

    Raises: as in `attention_entropy`.

    Source: Tu et al. 2016, section 3.1; See, Liu and Manning 2017, equation 10.
    """
    return ops.sum(_zero_masked_weights(weights, mask), axis=-2)


def _zero_masked_weights(weights: Tensor, mask: Any) -> Tensor:
    """Validate weights `(..., Tq, Tk)` and a mask; return the weights in float32 at least, masked weights as 0."""
    weights = as_tensor(weights)
    check_scores(weights, name="weights")
    weights = at_least_float32(weights)
    if mask is None:
        return weights
    mask = convert_mask(mask)
    check_attention_mask("mask", mask, shape_of(weights))
    return ops.where(mask, weights, 0.0)
