"""Build and combine boolean attention masks, band masks (causal, windows) among them, and zero what they mask."""

from functools import reduce
from typing import Any

import keras
from keras import ops

from .._shapes import dtype_of, max_size, min_size
from .._types import Masks, Pairs, Tensor


def lengths_mask(valid_lens: Tensor, scores_rank: int, num_keys: Any) -> Tensor:
    """Return True at key `j < valid_lens`: `B + (1, Tk)` for lengths `B`, `B + (Tq, Tk)` for lengths `B + (Tq,)`.

    The rank of the lengths says what they count, never a size: `B` and `Tq` may be equal.
    """
    if keras.backend.backend() == "jax" and dtype_of(valid_lens) == "uint32":
        valid_lens = ops.clip(valid_lens, 0, num_keys)  # JAX compares with int32 in int32, in which 2**31 is negative
    for _ in range(scores_rank - len(valid_lens.shape)):
        valid_lens = ops.expand_dims(valid_lens, -1)
    return ops.less(ops.arange(num_keys, dtype="int32"), valid_lens)


def segment_mask(query_ids: Tensor, key_ids: Tensor) -> Tensor:
    """True where query and key are of one segment: integers `B + (Tq,)` and `B + (Tk,)` to `B + (Tq, Tk)`."""
    if "uint64" in (dtype_of(query_ids), dtype_of(key_ids)):  # beside integers with a sign it would become a float
        query_ids, key_ids = ops.cast(query_ids, "int64"), ops.cast(key_ids, "int64")
    return ops.equal(ops.expand_dims(query_ids, -1), ops.expand_dims(key_ids, -2))


def intersect(*masks: Tensor | None) -> Tensor | None:
    """The pairs that every given mask lets take part; None when no mask is given."""
    active_masks = [mask for mask in masks if mask is not None]
    return reduce(ops.logical_and, active_masks) if active_masks else None


def combine_masks(masks: Masks, band: Pairs, num_queries: Any, num_keys: Any, scores_rank: int) -> Tensor | None:
    """Return the pairs of query and key that every mask lets take part, or None when there is no mask.

    The result are booleans of at least 2 axes that broadcast to scores `B + (Tq, Tk)` of `scores_rank` axes. While all
    masks speak of keys alone, the query axis keeps size 1: no mask of all pairs is made before one is needed.
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


def band_mask(band: Pairs, num_queries: Any, num_keys: Any, offset: Any = 0) -> Tensor | None:
    """Return which keys queries from position `offset` on see by the order of positions; None where they see all.

    The offset is an integer, a scalar tensor, or integers `B`; then the booleans are `B + (Tq, Tk)`, else (Tq, Tk).
    """
    left, right = band.band
    if left is None and right is None:
        return None
    query_positions = ops.expand_dims(ops.cast(offset, "int32"), -1) + ops.arange(num_queries, dtype="int32")
    relative_positions = ops.arange(num_keys, dtype="int32") - ops.expand_dims(query_positions, -1)
    conditions = [] if left is None else [ops.greater_equal(relative_positions, -left)]
    conditions += [] if right is None else [ops.less_equal(relative_positions, right)]
    return reduce(ops.logical_and, conditions)


def visible_key_range(band: Pairs, start: Any, stop: Any, num_keys: Any) -> tuple[Any, Any]:
    """Return the first key that queries `start <= i < stop` may see by the order of positions, and the range's end.

    There is always a key in the range, the last one if none is seen. All sizes are integers or scalar tensors.
    """
    left, right = band.band
    end = num_keys if right is None else min_size(stop + right, num_keys)
    return 0 if left is None else min_size(max_size(start - left, 0), max_size(end - 1, 0)), end


def add_attention_mask(masks: Masks, mask: Tensor | None, scores_rank: int) -> Masks:
    """The masks with one more of pairs, (Tq, Tk) or `B + (Tq, Tk)`, which is the same for all heads."""
    attention_mask = masks.attention_mask
    if (
        mask is not None
        and attention_mask is not None
        and len(attention_mask.shape) > scores_rank
        and len(mask.shape) > 2
    ):
        mask = ops.expand_dims(mask, -3)  # the mask that was given has an axis of heads
    return masks._replace(attention_mask=intersect(attention_mask, mask))


def has_no_empty_rows(masks: Masks, queries: Tensor, keys: Tensor) -> bool:
    """Return whether no query can be without a key and no key without a query, as far as static shapes tell.

    The order of positions, in a causal mask or a window, never hides a position from itself.
    """
    num_queries = queries.shape[-2]
    return all(mask is None for mask in masks) and num_queries is not None and num_queries == keys.shape[-2]


def split_example_lengths(masks: Masks, scores_rank: int) -> tuple[Tensor | None, Masks]:
    """The lengths, if there is one for each example, and all other masks."""
    lengths = masks.valid_lens
    if lengths is None or len(lengths.shape) != scores_rank - 2:
        return None, masks
    return lengths, masks._replace(valid_lens=None)


def hide(features: Tensor, mask: Tensor) -> Tensor:
    """Set features `B + (T, D)` to zero where booleans that broadcast to `B + (T,)` are False.

    A selection, not a product: zero times NaN is NaN, and a selection stops gradients too.
    """
    if keras.backend.backend() == "torch" and ops.is_tensor(features):  # Keras takes twice as long to see to dtypes
        import torch

        return torch.where(mask.unsqueeze(-1), features, 0.0)
    return ops.where(ops.expand_dims(mask, -1), features, 0.0)


def zero_masked_queries(
    queries_mask: Tensor | None, output: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Zeros in output `B + (Tq, D)` and weights `B + (Tq, Tk)`, if there are any, of queries that are masked."""
    if queries_mask is None:
        return output, weights
    return hide(output, queries_mask), None if weights is None else hide(weights, queries_mask)


def zero_fully_masked(mask: Tensor | None, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros for queries `B + (Tq, Dq)` that see no key, and for keys `B + (Tk, Dk)` that no query sees."""
    if mask is None:
        return queries, keys
    return hide(queries, ops.any(mask, axis=-1)), hide(keys, ops.any(mask, axis=-2))


def mean_of_common_keys(mask: Tensor | None, keys: Tensor) -> Tensor:
    """Return the mean `B + (1, D)` of the keys `B + (Tk, D)` that every query sees; zeros where there is none.

    The mask has at least 2 axes, or is None. Queries that see no key do not count. No other key has a part in the mean,
    so it tells a query nothing of keys that it does not see.
    """
    ones = ops.ones_like(keys[..., :1])
    if mask is not None:
        is_fully_masked = ops.logical_not(ops.any(mask, axis=-1, keepdims=True))
        is_common_key = ops.all(ops.logical_or(mask, is_fully_masked), axis=-2)
        keys, ones = hide(keys, is_common_key), hide(ones, is_common_key)
    count = ops.maximum(ops.sum(ones, axis=-2, keepdims=True), 1.0)
    return ops.sum(keys, axis=-2, keepdims=True) / count
