"""Masks with a head axis."""

from typing import Any, NamedTuple

from keras import ops

from .._types import Masks, Pairs, Tensor
from .masks import combine_masks, intersect, lengths_mask, split_lengths


class Seen(NamedTuple):
    """Booleans: queries `B + (Tq,)` that see a key in some head, and keys `B + (Tk,)` that some query sees."""

    queries: Tensor
    keys: Tensor


class MasksOfHeads(NamedTuple):
    """The masks of a call, for heads; None for each that hides nothing."""

    lengths: Tensor | None = None  # integers `B`, the same for all heads
    of_lengths: Tensor | None = None  # booleans `B + (1, Tk)`, True for the keys within the lengths
    mask: Tensor | None = None  # all other masks: booleans that broadcast to scores `B + (H, Tq, Tk)`
    seen: Seen | None = None  # queries and keys that take part in any head


def with_heads_axis(masks: Masks, rank: int) -> Masks:
    """Masks for queries `B + (T, D)` of a rank as masks for heads: the same for all, unless they have that axis."""
    pairs = None if masks.attention_mask is None else for_heads(masks.attention_mask, rank)
    others = masks._replace(attention_mask=None)
    others = Masks(*(None if mask is None else ops.expand_dims(mask, rank - 2) for mask in others))
    return others._replace(attention_mask=pairs)


def for_heads(pairwise: Tensor, rank: int) -> Tensor:
    """What broadcasts to scores `B + (Tq, Tk)` of a rank as what does to those of heads, unless it has their axis."""
    return ops.expand_dims(pairwise, -3) if 2 < len(pairwise.shape) <= rank else pairwise


def masks_of_heads(masks: Masks, pairs: Pairs, num_queries: Any, num_keys: Any, rank: int) -> MasksOfHeads:
    """Return the masks of a call as each head gets them; `rank` is the number of axes of queries `B + (Tq, D)`."""
    lengths, others = split_lengths(masks, rank)
    mask = combine_masks(with_heads_axis(others, rank), pairs, num_queries, num_keys, rank + 1)
    in_some_head: Any = mask
    if mask is not None:
        while len(in_some_head.shape) < rank + 1:
            in_some_head = ops.expand_dims(in_some_head, 0)
        in_some_head = ops.any(in_some_head, axis=-3)
    of_lengths = None if lengths is None else lengths_mask(lengths, rank, num_keys)
    in_some_head = intersect(of_lengths, in_some_head)
    if in_some_head is None:
        return MasksOfHeads()
    seen = Seen(ops.any(in_some_head, axis=-1), ops.any(in_some_head, axis=-2))
    return MasksOfHeads(lengths, of_lengths, mask, seen)


def queries_that_see(masks: Masks, pairs: Pairs, num_queries: Any, num_keys: Any, rank: int) -> Tensor | None:
    """Which queries some key takes part for in any head: booleans that broadcast to `B + (Tq,)`; None for all.

    No mask of all pairs is made where one of keys tells. The arguments are those of `masks_of_heads`.
    """
    of_keys = masks._replace(queries_mask=None)
    lengths, others = split_lengths(of_keys, rank)
    if lengths is not None and pairs == Pairs(causal=True) and all(mask is None for mask in others):
        seeing = ops.expand_dims(lengths > 0, -1)  # every query may see the first key
    else:
        seen = masks_of_heads(of_keys, pairs, num_queries, num_keys, rank).seen
        seeing = None if seen is None else seen.queries
    return intersect(seeing, masks.queries_mask)


def sees_some_key(seeing: Tensor | None, num_keys: Any) -> Tensor | None:
    """Return which queries see a key, booleans that broadcast to `B + (Tq,)`, also if Tk may be 0; None if all do."""
    if isinstance(num_keys, int) and num_keys > 0:
        return seeing
    # There may be no key at all, which a mask without the axis of keys does not tell.
    return intersect(seeing, ops.reshape(ops.convert_to_tensor(num_keys) > 0, (1,)))
