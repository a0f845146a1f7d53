"""Masks with a head axis.

Masks of a call are the same for all heads, `B + (Tq, Tk)`, or have a head axis, `B + (H, Tq, Tk)`. `rank` is the rank
of queries without a head axis, `B + (Tq, D)`. Tq and Tk are integers or scalar tensors.
"""

from typing import Any, NamedTuple

from keras import ops

from .._types import BandMask, Masks, Tensor
from .masks import combine_masks, intersect, lengths_mask, split_example_lengths


class Visibility(NamedTuple):
    """Booleans that are False for fully masked queries and keys, those masked in every head."""

    queries: Tensor  # `B + (Tq,)`
    keys: Tensor  # `B + (Tk,)`


class HeadMasks(NamedTuple):
    """Masks of a call for its heads; None for masks that are all True."""

    lengths: Tensor | None = None  # integers `B`, the same for all heads
    length_mask: Tensor | None = None  # the lengths as booleans `B + (1, Tk)`
    mask: Tensor | None = None  # all other masks: booleans that broadcast to scores `B + (H, Tq, Tk)`
    visibility: Visibility | None = None


def add_head_axis(masks: Masks, rank: int) -> Masks:
    """Insert a head axis of size 1 into all masks, `B + (T,)` to `B + (1, T)`, except into one that has a head axis."""
    attention_mask = None if masks.attention_mask is None else expand_pairs(masks.attention_mask, rank)
    other_masks = masks._replace(attention_mask=None)
    other_masks = Masks(*(None if mask is None else ops.expand_dims(mask, rank - 2) for mask in other_masks))
    return other_masks._replace(attention_mask=attention_mask)


def expand_pairs(pairwise: Tensor, rank: int) -> Tensor:
    """Insert a head axis into a mask or bias that broadcasts to `B + (Tq, Tk)`, unless the tensor has a head axis."""
    return ops.expand_dims(pairwise, -3) if 2 < len(pairwise.shape) <= rank else pairwise


def make_head_masks(masks: Masks, band: BandMask, num_queries: Any, num_keys: Any, rank: int) -> HeadMasks:
    """Return the masks of a call for its heads; lengths per example `B` stay separate from the merged mask.

    The masks have the shapes of call arguments, as in `Masks`; the result has those of `HeadMasks`.
    """
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


def visible_queries(masks: Masks, band: BandMask, num_queries: Any, num_keys: Any, rank: int) -> Tensor | None:
    """Return booleans that are False for fully masked queries and broadcast to `B + (Tq,)`; None if all are True.

    Arguments as in `make_head_masks`.
    """
    key_masks = masks._replace(queries_mask=None)
    lengths, other_masks = split_example_lengths(key_masks, rank)
    if lengths is not None and band == BandMask(causal=True) and all(mask is None for mask in other_masks):
        # A causal mask never masks key 0, so the lengths decide, without a pairwise mask.
        has_key = ops.expand_dims(lengths > 0, -1)
    else:
        visibility = make_head_masks(key_masks, band, num_queries, num_keys, rank).visibility
        has_key = None if visibility is None else visibility.queries
    return intersect(has_key, masks.queries_mask)


def has_visible_key(has_key: Tensor | None, num_keys: Any) -> Tensor | None:
    """Add the condition Tk > 0 to the result of `visible_queries`, booleans that broadcast to `B + (Tq,)`."""
    if isinstance(num_keys, int) and num_keys > 0:
        return has_key
    # A mask of the queries alone, or no mask, does not show that there are no keys.
    return intersect(has_key, ops.reshape(ops.convert_to_tensor(num_keys) > 0, (1,)))
