"""The arguments of one attention call, as an immutable record."""

from typing import Any, NamedTuple

from keras import ops

from .._maths.masks import combine_masks, intersect, lengths_mask, order_mask, segments_mask, with_pairs
from .._states.cache import Keys
from .._types import Heads, Masks, Pairs, Tensor


class AttentionCall(NamedTuple):
    """All that a call was given; once it is checked, in this form.

    Attributes:
        queries: `B + (Tq, Dq)`.
        keys: `B + (Tk, Dk)`, or projected.
        values: `B + (Tk, Dv)`, or projected where the keys are a state that holds values.
        masks: What there is of them.
        pairs: Which pairs take part by the order of positions, counted from the first of each.
        offset: Position of the first query: an integer or integers, a scalar or `B`; None for what the keys tell.
        segment_ids: Integers of the queries, `B + (Tq,)`, and of the keys, `B + (Tk,)`; None where all are one text.
        bias: Floats that broadcast to the scores, or None.
        returns_weights: Whether the weights are wanted.
        training: Whether dropout acts.
        heads: How many lie side by side in queries, keys and values; None where there is no axis for them.
        previous_weights: Weights of the step before, `B + (1, Tk)` or `B + (Tq, Tk)`, or None.
        is_clean: Whether what is masked is finite, and no row without keys is read: nothing has to be hidden then.
    """

    queries: Tensor
    keys: Keys
    values: Tensor
    masks: Masks = Masks()
    pairs: Pairs = Pairs()
    offset: Any = None
    segment_ids: tuple[Tensor, Tensor] | None = None
    bias: Tensor | None = None
    returns_weights: bool = False
    training: bool | None = None
    heads: Heads | None = None
    previous_weights: Tensor | None = None
    is_clean: bool = False

    def mask(self) -> Tensor | None:
        """The pairs of query and key that take part, for a layer without heads; None where all do."""
        num_queries, num_keys = ops.shape(self.queries)[-2], ops.shape(self.keys.tensor)[-2]
        return combine_masks(self.masks, self.pairs, num_queries, num_keys, len(self.queries.shape))


def with_all_masks(call: AttentionCall, num_keys: Any) -> AttentionCall:
    """The call with the position of its first query, and with all in its masks that hides a key.

    That is what other segments hold, what a state of fixed capacity does not have yet, and what the order of positions
    keeps out where it does not count from 0.

    Args:
        call: What a layer was given.
        num_keys: Tk, an integer or a scalar tensor.
    """
    masks, pairs, keys = call.masks, call.pairs, call.keys
    num_queries, rank = ops.shape(call.queries)[-2], len(call.queries.shape)
    if keys.length is not None:
        there = ops.squeeze(lengths_mask(keys.length, len(keys.length.shape) + 2, num_keys), -2)
        masks = masks._replace(keys_mask=intersect(masks.keys_mask, there))
    first = _position_of_first(call, num_queries, num_keys)
    are_last = call.offset is None and keys.values is not None
    if are_last and isinstance(num_queries, int) and num_queries == 1:  # no key comes after it
        pairs = pairs._replace(causal=False)
    if call.segment_ids is not None:
        masks = with_pairs(masks, segments_mask(*call.segment_ids), rank)
    if not (isinstance(first, int) and first == 0):
        masks = with_pairs(masks, order_mask(pairs, num_queries, num_keys, first), rank)
        pairs = Pairs()
    return call._replace(masks=masks, pairs=pairs, offset=first)


def _position_of_first(call: AttentionCall, num_queries: Any, num_keys: Any) -> Any:
    """An integer, a scalar tensor or integers `B`."""
    if call.offset is not None:
        return call.offset
    if call.keys.values is None:
        return 0
    # A state with values holds all steps so far, and the queries are the last of them.
    return (num_keys if call.keys.length is None else ops.cast(call.keys.length, "int32")) - num_queries
