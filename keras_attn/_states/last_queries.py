"""Queries that do not begin at the first key: in a decoder they are the last of all steps."""

from typing import Any

from keras import ops

from .._maths.masks import intersect, lengths_mask
from .._tensors import Masks, Pairs, Tensor
from .state import Keys


def position_of_first(offset: Any, keys: Keys, num_queries: Any, num_keys: Any) -> Any:
    """The position of the first query among the keys: an integer, a scalar tensor or integers `B`.

    Args:
        offset: What the call was given, or None.
        keys: With values of their own they are all steps so far, and the queries the last of them.
        num_queries: Tq, an integer or a scalar tensor.
        num_keys: Tk, likewise.
    """
    if offset is not None:
        return offset
    if keys.values is None:
        return 0
    return (num_keys if keys.length is None else ops.cast(keys.length, "int32")) - num_queries


def in_masks(
    masks: Masks, pairs: Pairs, offset: Any, keys: Keys, num_queries: Any, num_keys: Any, scores_rank: int
) -> tuple[Masks, Pairs]:
    """Masks with what a state has no keys for yet, and with the order of positions if it does not count from 0.

    Args:
        masks: All that a call was given.
        pairs: Which pairs take part by their order.
        offset: What the call was given, or None.
        keys: The keys, perhaps with values and a length.
        num_queries: Tq, an integer or a scalar tensor.
        num_keys: Tk, likewise.
        scores_rank: Number of axes of the scores, without one of heads.

    Returns:
        The masks, and the order of pairs that is not in them.
    """
    if keys.length is not None:
        there = ops.squeeze(lengths_mask(keys.length, len(keys.length.shape) + 2, num_keys), -2)
        masks = masks._replace(keys_mask=intersect(masks.keys_mask, there))
    first = position_of_first(offset, keys, num_queries, num_keys)
    is_last_alone = offset is None and keys.values is not None and isinstance(num_queries, int) and num_queries == 1
    if is_last_alone:  # no key comes after it
        pairs = pairs._replace(causal=False)
    if pairs == Pairs() or (isinstance(first, int) and first == 0):
        return masks, pairs
    order = order_mask(pairs, num_queries, num_keys, first)
    mask = masks.attention_mask
    if order is not None and mask is not None and len(mask.shape) > scores_rank and len(order.shape) > 2:
        order = ops.expand_dims(order, -3)  # the mask has an axis of heads
    return masks._replace(attention_mask=intersect(mask, order)), Pairs()


def order_mask(pairs: Pairs, num_queries: Any, num_keys: Any, offset: Any) -> Tensor | None:
    """True where queries that begin at a position may see a key by the order of positions; None where they see all.

    Args:
        pairs: Whether query `i` sees only keys `j <= offset + i`, and its window.
        num_queries: Tq, an integer or a scalar tensor.
        num_keys: Tk, likewise.
        offset: Position of the first query: an integer, a scalar tensor, or integers `B`.

    Returns:
        Booleans (Tq, Tk), or `B + (Tq, Tk)` where the offset has B.
    """
    left, right = pairs.window or (None, None)
    right = 0 if pairs.causal else right  # a window's own is at least that
    own = ops.expand_dims(ops.cast(offset, "int32"), -1) + ops.arange(num_queries, dtype="int32")
    gaps = ops.arange(num_keys, dtype="int32") - ops.expand_dims(own, -1)
    return intersect(None if left is None else gaps >= -left, None if right is None else gaps <= right)
