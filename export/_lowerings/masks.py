"""Combine the masks of a call; zero masked keys, values and outputs."""

from functools import cached_property

from .._onnx.lazy_values import Outputs, Value, op
from .._tracing.attention_calls import Call
from .body_inputs import Given, conjunction
from .heads import heads_apart, side_by_side


def is_masked(call: Call) -> bool:
    """Tell whether anything may keep keys out."""
    return call.has_lengths or call.has_keys_mask or call.differs_by_query


def may_lack_keys(call: Call) -> bool:
    """Tell whether a query may be without a key. By its order alone it is not, while it may look back to the first."""
    masks = call.has_lengths or call.has_keys_mask or call.has_query_lengths or call.has_pair_mask
    return masks or call.band[0] is not None


def differs_by_head(call: Call) -> bool:
    """Tell whether heads of one query may see other keys."""
    return call.heads is not None and call.has_pair_mask and call.shapes["mask"][-3] != 1


def by_lengths_alone(call: Call) -> bool:
    """Tell whether a call has lengths of examples and no other mask."""
    return call.has_lengths and not call.has_keys_mask and not call.differs_by_query


def in_band(call: Call, queries: Value, keys: Value) -> Value:
    """Return booleans (rows, keys) from numbers of queries (rows, 1) and of keys (keys,)."""
    left, right = call.band
    parts = [] if left is None else [keys >= queries + -left]
    return conjunction(parts if right is None else [*parts, keys <= queries + right])


class Masks:
    """The masks of a call together.

    Attributes:
        given: What the call is given.
    """

    def __init__(self, given: Given) -> None:
        self.given, self._call = given, given.call

    @cached_property
    def keys(self) -> Value:
        """Booleans (N, Tk): the keys that the masks of keys leave."""
        if self._call.has_keys_mask:
            return self.given.keys_mask
        return self.given.positions < op.Unsqueeze(self.given.lengths, [1])

    @cached_property
    def pairs(self) -> Value:
        """Booleans (N or 1, H or 1, Tq or 1, Tk) of a call that is masked."""
        call, given, parts = self._call, self.given, []
        if call.band != (None, None):
            in_order = in_band(call, op.Unsqueeze(given.query_numbers, [1]), given.positions)
            parts.append(op.Unsqueeze(in_order, [0, 1]))
        if call.has_query_lengths:
            parts.append(op.Unsqueeze(given.positions < op.Unsqueeze(given.query_lengths, [-1]), [1]))
        if call.has_pair_mask:
            parts.append(given.mask)
        if call.has_keys_mask or call.has_lengths:
            parts.append(op.Unsqueeze(self.keys, [1, 2]))
        return conjunction(parts)

    @cached_property
    def _has_length(self) -> Value:
        return self.given.lengths > 0

    @cached_property
    def row_sees(self) -> Value:
        """Booleans (N or 1, H or 1, Tq or 1, 1): whether a query sees a key."""
        if by_lengths_alone(self._call):
            return op.Unsqueeze(self._has_length, [1, 2, 3])
        return self.given.any_of(self.pairs, [-1], keepdims=True)

    @cached_property
    def row_sees_in_any_head(self) -> Value:
        """The same without the axis of heads."""
        if by_lengths_alone(self._call):
            return op.Unsqueeze(self._has_length, [1, 2])
        return self.given.any_of(self.row_sees, [1]) if differs_by_head(self._call) else op.Squeeze(self.row_sees, [1])

    @cached_property
    def all_see(self) -> Value:
        """Whether no query lacks keys, a scalar, where masks are of keys."""
        if by_lengths_alone(self._call):
            return op.ReduceMin(self.given.lengths, keepdims=0) > 0
        return self.given.all_of(self.row_sees)

    @cached_property
    def _key_is_seen(self) -> Value:
        """Booleans (N or 1, Tk, 1): whether any query sees a key."""
        seen = self.given.any_of(self.pairs, [1, 2]) if self._call.differs_by_query else self.keys
        return op.Unsqueeze(seen, [-1])

    def hidden(self, tensor: Value) -> Value:
        """Return keys or values with zeros where no query sees them."""
        return op.Where(self._key_is_seen, tensor, 0.0) if is_masked(self._call) else tensor

    def hidden_queries(self) -> Value:
        """Return queries with zeros where they see no key."""
        queries = self.given.queries
        return op.Where(self.row_sees_in_any_head, queries, 0.0) if may_lack_keys(self._call) else queries

    def zeroed(self, outputs: Outputs) -> Outputs:
        """Return the outputs of a call with zeros where a query sees no key."""
        if not may_lack_keys(self._call):
            return outputs
        output, *weights = outputs
        of_weights = self.row_sees_in_any_head if self._call.heads is None else self.row_sees
        return self._zeroed_output(output), *(op.Where(of_weights, each, 0.0) for each in weights)

    def _zeroed_output(self, output: Value) -> Value:
        call = self._call
        if not differs_by_head(call):
            return op.Where(self.row_sees_in_any_head, output, 0.0)
        by_heads = heads_apart(output, call.num_heads, call.value_size)
        zeroed = op.Where(op.Transpose(self.row_sees, perm=[0, 2, 1, 3]), by_heads, 0.0)
        return side_by_side(zeroed, call.num_heads * call.value_size)
