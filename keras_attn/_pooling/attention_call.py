"""The arguments of one attention call, as an immutable record."""

from typing import Any, NamedTuple

from keras import ops

from .._maths.masks import add_attention_mask, band_mask, combine_masks, intersect, lengths_mask, segment_mask
from .._states.cache import Keys
from .._types import Heads, Masks, Pairs, Tensor


class AttentionCall(NamedTuple):
    """The arguments of a call, as passed; once checked, in this form."""

    queries: Tensor  # `B + (Tq, Dq)`
    keys: Keys  # `B + (Tk, Dk)`, or projected
    values: Tensor  # `B + (Tk, Dv)`, or projected if the keys are a state that holds values
    masks: Masks = Masks()
    pairs: Pairs = Pairs()  # counted from the first position of queries and keys
    offset: Any = None  # position of the first query, a scalar or `B`; None for that which the keys imply
    segment_ids: tuple[Tensor, Tensor] | None = None  # integers of queries, `B + (Tq,)`, and of keys, `B + (Tk,)`
    bias: Tensor | None = None  # floats that broadcast to the scores
    returns_weights: bool = False
    training: bool | None = None
    heads: Heads | None = None  # side by side in queries, keys and values; None if they have an axis, or there are none
    previous_weights: Tensor | None = None  # of the previous step, `B + (1, Tk)` or `B + (Tq, Tk)`
    skip_zeroing: bool = False  # masked positions are finite and no row without keys is read: nothing has to be hidden

    def mask(self) -> Tensor | None:
        """The pairs of query and key that take part, for a layer without heads; None where all do."""
        num_queries, num_keys = ops.shape(self.queries)[-2], ops.shape(self.keys.tensor)[-2]
        return combine_masks(self.masks, self.pairs, num_queries, num_keys, len(self.queries.shape))


def merge_masks(call: AttentionCall, num_keys: Any) -> AttentionCall:
    """Add to the masks of a call what else hides a key, and set the position of its first query.

    These are other segments, places of a state of fixed capacity that hold no step yet, and the order of positions
    where it does not count from 0.
    """
    masks, band, keys = call.masks, call.pairs, call.keys
    num_queries, rank = ops.shape(call.queries)[-2], len(call.queries.shape)
    if keys.length is not None:
        is_filled = ops.squeeze(lengths_mask(keys.length, len(keys.length.shape) + 2, num_keys), -2)
        masks = masks._replace(keys_mask=intersect(masks.keys_mask, is_filled))
    first_position = _first_query_position(call, num_queries, num_keys)
    end_at_last_key = call.offset is None and keys.values is not None
    if end_at_last_key and isinstance(num_queries, int) and num_queries == 1:  # no key comes after it
        band = band._replace(causal=False)
    if call.segment_ids is not None:
        masks = add_attention_mask(masks, segment_mask(*call.segment_ids), rank)
    if not (isinstance(first_position, int) and first_position == 0):
        masks = add_attention_mask(masks, band_mask(band, num_queries, num_keys, first_position), rank)
        band = Pairs()
    return call._replace(masks=masks, pairs=band, offset=first_position)


def _first_query_position(call: AttentionCall, num_queries: Any, num_keys: Any) -> Any:
    """An integer, a scalar tensor or integers `B`."""
    if call.offset is not None:
        return call.offset
    if call.keys.values is None:
        return 0
    # A state with values holds all steps so far, and the queries are the last of them.
    return (num_keys if call.keys.length is None else ops.cast(call.keys.length, "int32")) - num_queries
