"""Immutable record of the arguments of one attention call."""

from typing import Any, NamedTuple

from keras import ops

from .._maths.masks import add_attention_mask, band_mask, combine_masks, intersect, lengths_mask, segment_mask
from .._states.cache import KeyInput
from .._types import BandMask, Heads, Masks, Tensor


class AttentionCall(NamedTuple):
    """Arguments of a call, first as passed by the caller, after validation with these types and shapes."""

    queries: Tensor  # `B + (Tq, Dq)`
    keys: KeyInput  # `B + (Tk, Dk)`, or projected
    values: Tensor  # `B + (Tk, Dv)`, or projected if the keys are a cache with values
    masks: Masks = Masks()
    band: BandMask = BandMask()  # positions count from the first query and the first key
    offset: Any = None  # position of the first query, a scalar or `B`; None to infer it from the keys
    segment_ids: tuple[Tensor, Tensor] | None = None  # integers of queries `B + (Tq,)` and keys `B + (Tk,)`
    bias: Tensor | None = None  # floats that broadcast to the scores `B + (Tq, Tk)`
    returns_weights: bool = False
    training: bool | None = None
    heads: Heads | None = None  # numbers of heads on the last axis of queries, keys and values; None for a head axis
    previous_weights: Tensor | None = None  # weights of the previous step, `B + (1, Tk)` or `B + (Tq, Tk)`
    # True if masked features are finite and the results of fully masked queries are not used.
    skip_zeroing: bool = False

    def mask(self) -> Tensor | None:
        """Return the merged mask, at least 2 axes, broadcast to `B + (Tq, Tk)`; None if nothing is masked. No heads."""
        num_queries, num_keys = ops.shape(self.queries)[-2], ops.shape(self.keys.tensor)[-2]
        return combine_masks(self.masks, self.band, num_queries, num_keys, len(self.queries.shape))


def merge_masks(call: AttentionCall, num_keys: Any) -> AttentionCall:
    """Merge every source of masking into `call.masks`, and set the position of the first query.

    Sources are segment ids, unused slots of a fixed-capacity cache, and a causal mask or window if the queries do not
    start at position 0. Tk is an integer or a scalar tensor.
    """
    masks, band, keys = call.masks, call.band, call.keys
    num_queries, rank = ops.shape(call.queries)[-2], len(call.queries.shape)
    if keys.length is not None:
        is_filled = ops.squeeze(lengths_mask(keys.length, len(keys.length.shape) + 2, num_keys), -2)
        masks = masks._replace(keys_mask=intersect(masks.keys_mask, is_filled))
    first_position = _first_query_position(call, num_queries, num_keys)
    end_at_last_key = call.offset is None and keys.values is not None
    if end_at_last_key and isinstance(num_queries, int) and num_queries == 1:
        # No key comes after the last position, so a causal mask masks nothing.
        band = band._replace(causal=False)
    if call.segment_ids is not None:
        masks = add_attention_mask(masks, segment_mask(*call.segment_ids), rank)
    if not (isinstance(first_position, int) and first_position == 0):
        masks = add_attention_mask(masks, band_mask(band, num_queries, num_keys, first_position), rank)
        band = BandMask()
    return call._replace(masks=masks, band=band, offset=first_position)


def _first_query_position(call: AttentionCall, num_queries: Any, num_keys: Any) -> Any:
    """Return the position of the first query: an integer, a scalar tensor or integers `B`."""
    if call.offset is not None:
        return call.offset
    if call.keys.values is None:
        return 0
    # The queries are the last steps of a cache with values.
    return (num_keys if call.keys.length is None else ops.cast(call.keys.length, "int32")) - num_queries
