"""Masks with a head axis."""

from typing import Any, NamedTuple

from keras import ops

from .._types import Masks, Pairs, Tensor
from .masks import combine_masks, intersect, lengths_mask, split_example_lengths


class Visibility(NamedTuple):
    """Booleans: queries `B + (Tq,)` that see a key in some head, and keys `B + (Tk,)` that some query sees."""

    queries: Tensor
    keys: Tensor


class HeadMasks(NamedTuple):
    """The masks of a call, for heads; None for each that hides nothing."""

    lengths: Tensor | None = None  # integers `B`, the same for all heads
    length_mask: Tensor | None = None  # booleans `B + (1, Tk)`, True for the keys within the lengths
    mask: Tensor | None = None  # all other masks: booleans that broadcast to scores `B + (H, Tq, Tk)`
    visibility: Visibility | None = None  # queries and keys that take part in any head


def add_head_axis(masks: Masks, rank: int) -> Masks:
    """Masks for queries `B + (T, D)` of a rank as masks for heads: the same for all, unless they have that axis."""
    attention_mask = None if masks.attention_mask is None else add_head_axis_to_pairwise(masks.attention_mask, rank)
    other_masks = masks._replace(attention_mask=None)
    other_masks = Masks(*(None if mask is None else ops.expand_dims(mask, rank - 2) for mask in other_masks))
    return other_masks._replace(attention_mask=attention_mask)


def add_head_axis_to_pairwise(pairwise: Tensor, rank: int) -> Tensor:
    """What broadcasts to scores `B + (Tq, Tk)` of a rank as what does to those of heads, unless it has their axis."""
    return ops.expand_dims(pairwise, -3) if 2 < len(pairwise.shape) <= rank else pairwise


def make_head_masks(masks: Masks, band: Pairs, num_queries: Any, num_keys: Any, rank: int) -> HeadMasks:
    """Return the masks of a call as each head gets them; `rank` is the number of axes of queries `B + (Tq, D)`."""
    lengths, other_masks = split_example_lengths(masks, rank)
    mask = combine_masks(add_head_axis(other_masks, rank), band, num_queries, num_keys, rank + 1)
    any_head_mask: Any = mask
    if mask is not None:
        while len(any_head_mask.shape) < rank + 1:
            any_head_mask = ops.expand_dims(any_head_mask, 0)
        any_head_mask = ops.any(any_head_mask, axis=-3)
    length_mask = None if lengths is None else lengths_mask(lengths, rank, num_keys)
    any_head_mask = intersect(length_mask, any_head_mask)
    if any_head_mask is None:
        return HeadMasks()
    visibility = Visibility(ops.any(any_head_mask, axis=-1), ops.any(any_head_mask, axis=-2))
    return HeadMasks(lengths, length_mask, mask, visibility)


def queries_with_keys(masks: Masks, band: Pairs, num_queries: Any, num_keys: Any, rank: int) -> Tensor | None:
    """Which queries some key takes part for in any head: booleans that broadcast to `B + (Tq,)`; None for all.

    No mask of all pairs is made where one of keys tells. The arguments are those of `masks_of_heads`.
    """
    key_masks = masks._replace(queries_mask=None)
    lengths, other_masks = split_example_lengths(key_masks, rank)
    if lengths is not None and band == Pairs(causal=True) and all(mask is None for mask in other_masks):
        has_key = ops.expand_dims(lengths > 0, -1)  # every query may see the first key
    else:
        visibility = make_head_masks(key_masks, band, num_queries, num_keys, rank).visibility
        has_key = None if visibility is None else visibility.queries
    return intersect(has_key, masks.queries_mask)


def has_visible_key(has_key: Tensor | None, num_keys: Any) -> Tensor | None:
    """Return which queries see a key, booleans that broadcast to `B + (Tq,)`, also if Tk may be 0; None if all do."""
    if isinstance(num_keys, int) and num_keys > 0:
        return has_key
    # There may be no key at all, which a mask without the axis of keys does not tell.
    return intersect(has_key, ops.reshape(ops.convert_to_tensor(num_keys) > 0, (1,)))
