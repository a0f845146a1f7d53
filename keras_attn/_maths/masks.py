"""Boolean attention masks, and zeros for masked features. True marks an unmasked position or pair.

Masks of the keys keep a query axis of size 1 as long as possible, `B + (1, Tk)`: a pairwise mask `B + (Tq, Tk)` is
only built if a mask depends on both query and key. Features are zeroed by a selection and not by a product, since zero
times NaN is NaN; a selection also stops the gradients of the masked features.
"""

from functools import reduce
from typing import Any

import keras
from keras import ops

from .._shapes import dtype_of, max_size, min_size
from .._types import BandMask, Masks, Tensor


def lengths_mask(valid_lens: Tensor, scores_rank: int, num_keys: Any) -> Tensor:
    """Return booleans that are True for keys `j < valid_lens`.

    Lengths (integers) `B` become `B + (1, Tk)`, lengths `B + (Tq,)` become `B + (Tq, Tk)`. `scores_rank` is the rank
    of scores `B + (Tq, Tk)`. The rank distinguishes both kinds of lengths: sizes cannot, as B and Tq may be equal.
    """
    if keras.backend.backend() == "jax" and dtype_of(valid_lens) == "uint32":
        # JAX compares uint32 with int32 as int32, in which 2**31 and more are negative.
        valid_lens = ops.clip(valid_lens, 0, num_keys)
    for _ in range(scores_rank - len(valid_lens.shape)):
        valid_lens = ops.expand_dims(valid_lens, -1)
    return ops.less(ops.arange(num_keys, dtype="int32"), valid_lens)


def segment_mask(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """Compare segment ids, integers `B + (Tq,)` and `B + (Tk,)`; return booleans `B + (Tq, Tk)`, True if equal."""
    if "uint64" in (dtype_of(query_ids), dtype_of(key_ids)):
        # The common dtype of uint64 and a signed integer is a float, which merges large ids.
        query_ids, key_ids = ops.cast(query_ids, "int64"), ops.cast(key_ids, "int64")
    return ops.equal(ops.expand_dims(query_ids, -1), ops.expand_dims(key_ids, -2))


def intersect(*masks: Tensor | None) -> Tensor | None:
    """Return the logical and of boolean masks that broadcast to each other; None for masks that are all None."""
    active_masks = [mask for mask in masks if mask is not None]
    return reduce(ops.logical_and, active_masks) if active_masks else None


def combine_masks(masks: Masks, band: BandMask, num_queries: Any, num_keys: Any, scores_rank: int) -> Tensor | None:
    """Merge all masks of a call into one; return None if nothing is masked.

    The result is boolean, has at least 2 axes and broadcasts to scores `B + (Tq, Tk)` of rank `scores_rank`. Tq and Tk
    are integers or scalar tensors.
    """
    keys_mask = intersect(masks.keys_mask, masks.values_mask)
    mask = intersect(
        None if masks.valid_lens is None else lengths_mask(masks.valid_lens, scores_rank, num_keys),
        None if keys_mask is None else ops.expand_dims(keys_mask, -2),
        masks.attention_mask,
        band_mask(band, num_queries, num_keys),
        None if masks.queries_mask is None else ops.expand_dims(masks.queries_mask, -1),
    )
    while mask is not None and len(mask.shape) < 2:
        mask = ops.expand_dims(mask, 0)
    return mask


def band_mask(band: BandMask, num_queries: Any, num_keys: Any, offset: Any = 0) -> Tensor | None:
    """Return the mask of a causal mask or window; None for a band without bounds.

    Query `i` has position `offset + i`, key `j` position `j`. The offset is an integer or a scalar tensor, and the
    result (Tq, Tk); or integers `B`, and the result `B + (Tq, Tk)`.
    """
    left, right = band.window_limits
    if left is None and right is None:
        return None
    query_positions = ops.expand_dims(ops.cast(offset, "int32"), -1) + ops.arange(num_queries, dtype="int32")
    relative_positions = ops.arange(num_keys, dtype="int32") - ops.expand_dims(query_positions, -1)
    conditions = [] if left is None else [ops.greater_equal(relative_positions, -left)]
    conditions += [] if right is None else [ops.less_equal(relative_positions, right)]
    return reduce(ops.logical_and, conditions)


def visible_key_range(band: BandMask, start: Any, stop: Any, num_keys: Any) -> tuple[Any, Any]:
    """Return (first, end) of the keys that a band leaves unmasked for any query `start <= i < stop`.

    The range holds at least one key: the last key if the band masks all keys. All sizes are integers or scalar tensors.
    """
    left, right = band.window_limits
    end = num_keys if right is None else min_size(stop + right, num_keys)
    return 0 if left is None else min_size(max_size(start - left, 0), max_size(end - 1, 0)), end


def add_attention_mask(masks: Masks, mask: Tensor | None, scores_rank: int) -> Masks:
    """Merge a boolean mask (Tq, Tk) or `B + (Tq, Tk)`, the same for all heads, into `masks.attention_mask`."""
    attention_mask = masks.attention_mask
    has_heads = attention_mask is not None and len(attention_mask.shape) > scores_rank
    if mask is not None and has_heads and len(mask.shape) > 2:
        mask = ops.expand_dims(mask, -3)
    return masks._replace(attention_mask=intersect(attention_mask, mask))


def all_rows_visible(masks: Masks, queries: Tensor, keys: Tensor) -> bool:
    """Return True if it is statically known that no query `B + (Tq, D)` and no key `B + (Tk, D)` is fully masked.

    This holds without masks if Tq equals Tk: every causal mask and window includes the query's own position.
    """
    num_queries = queries.shape[-2]
    return all(mask is None for mask in masks) and num_queries is not None and num_queries == keys.shape[-2]


def split_example_lengths(masks: Masks, scores_rank: int) -> tuple[Tensor | None, Masks]:
    """Separate valid lengths per example, integers `B`, from all other masks; None for lengths per query or none."""
    lengths = masks.valid_lens
    if lengths is None or len(lengths.shape) != scores_rank - 2:
        return None, masks
    return lengths, masks._replace(valid_lens=None)


def zero_masked(features: Tensor, mask: Tensor) -> Tensor:
    """Return features `B + (T, D)` with zeros where a mask, booleans that broadcast to `B + (T,)`, is False."""
    if keras.backend.backend() == "torch" and ops.is_tensor(features):
        import torch

        # `keras.ops.where` takes twice as long, for its promotion of dtypes.
        return torch.where(mask.unsqueeze(-1), features, 0.0)
    return ops.where(ops.expand_dims(mask, -1), features, 0.0)


def zero_masked_queries(mask: Tensor | None, output: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Zero output `B + (Tq, D)` and weights `B + (Tq, Tk)` of masked queries; the mask is boolean, `B + (Tq,)`."""
    if mask is None:
        return output, weights
    return zero_masked(output, mask), None if weights is None else zero_masked(weights, mask)


def zero_fully_masked(mask: Tensor | None, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Zero fully masked queries `B + (Tq, Dq)` and keys `B + (Tk, Dk)`; the mask broadcasts to `B + (Tq, Tk)`."""
    if mask is None:
        return queries, keys
    return zero_masked(queries, ops.any(mask, axis=-1)), zero_masked(keys, ops.any(mask, axis=-2))


def mean_of_common_keys(mask: Tensor | None, keys: Tensor) -> Tensor:
    """Return the mean `B + (1, D)` of the keys `B + (Tk, D)` unmasked for every query; zeros without such keys.

    The mask has at least 2 axes and broadcasts to `B + (Tq, Tk)`. Fully masked queries are ignored.
    """
    # If a key that is masked for some query entered the mean, that query's result would depend on the key.
    ones = ops.ones_like(keys[..., :1])
    if mask is not None:
        is_fully_masked = ops.logical_not(ops.any(mask, axis=-1, keepdims=True))
        is_common_key = ops.all(ops.logical_or(mask, is_fully_masked), axis=-2)
        keys, ones = zero_masked(keys, is_common_key), zero_masked(ones, is_common_key)
    count = ops.maximum(ops.sum(ones, axis=-2, keepdims=True), 1.0)
    return ops.sum(keys, axis=-2, keepdims=True) / count
