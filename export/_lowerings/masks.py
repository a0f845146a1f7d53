"""Combine the masks of a call; zero masked keys, values and outputs.

A query and a key that any mask excludes are a masked pair. A query without unmasked key is a fully masked row: its
output and weights are zeros.
"""

from functools import cached_property

from .._onnx.lazy_values import Outputs, Value, op
from .._tracing.attention_calls import TracedCall
from .body_inputs import BodyInputs, logical_and
from .heads import pack_heads, unpack_heads


def is_masked(call: TracedCall) -> bool:
    """Return True if a call has any mask."""
    return call.has_lengths or call.has_key_mask or call.mask_differs_by_query


def may_have_fully_masked_rows(call: TracedCall) -> bool:
    """Return True if a query may have no unmasked key."""
    # A causal mask leaves key 0 to each query; a window with a left limit leaves none to queries behind the keys
    masks = call.has_lengths or call.has_key_mask or call.has_query_lengths or call.has_attention_mask
    return masks or call.window[0] is not None


def mask_differs_by_head(call: TracedCall) -> bool:
    """Return True if the heads of a query may have different masks."""
    return call.heads is not None and call.has_attention_mask and call.shapes["mask"][-3] != 1


def has_only_lengths(call: TracedCall) -> bool:
    """Return True if the only mask of a call is one length for each example."""
    return call.has_lengths and not call.has_key_mask and not call.mask_differs_by_query


def build_band_mask(call: TracedCall, query_positions: Value, key_positions: Value) -> Value:
    """Return the mask of a window: booleans (queries, keys) of positions, int64 (queries, 1) and (keys,)."""
    left, right = call.window
    limits = [] if left is None else [key_positions >= query_positions + -left]
    return logical_and(limits if right is None else [*limits, key_positions <= query_positions + right])


class Masks:
    """Combined masks of a call."""

    def __init__(self, inputs: BodyInputs) -> None:
        self.inputs, self._call = inputs, inputs.call

    @cached_property
    def key_mask(self) -> Value:
        """Mask equal for all queries and heads, booleans (B, Tk), of a call with lengths or a key mask."""
        if self._call.has_key_mask:
            return self.inputs.keys_mask
        return self.inputs.key_positions < op.Unsqueeze(self.inputs.lengths, [1])

    @cached_property
    def attention_mask(self) -> Value:
        """All masks of a masked call combined, booleans (B or 1, H or 1, Tq or 1, Tk)."""
        call, inputs, masks = self._call, self.inputs, []
        if call.window != (None, None):
            band_mask = build_band_mask(call, op.Unsqueeze(inputs.query_positions, [1]), inputs.key_positions)
            masks.append(op.Unsqueeze(band_mask, [0, 1]))
        if call.has_query_lengths:
            masks.append(op.Unsqueeze(inputs.key_positions < op.Unsqueeze(inputs.query_lengths, [-1]), [1]))
        if call.has_attention_mask:
            masks.append(inputs.mask)
        if call.has_key_mask or call.has_lengths:
            masks.append(op.Unsqueeze(self.key_mask, [1, 2]))
        return logical_and(masks)

    @cached_property
    def _has_positive_length(self) -> Value:
        """Booleans (B,): True for examples with an unmasked key, if lengths are the only mask."""
        return self.inputs.lengths > 0

    @cached_property
    def row_has_key(self) -> Value:
        """False for fully masked rows, booleans (B or 1, H or 1, Tq or 1, 1)."""
        if has_only_lengths(self._call):
            return op.Unsqueeze(self._has_positive_length, [1, 2, 3])
        return self.inputs.reduce_any(self.attention_mask, [-1], keepdims=True)

    @cached_property
    def row_has_key_in_any_head(self) -> Value:
        """False for queries that are fully masked in all heads, booleans (B or 1, Tq or 1, 1)."""
        if has_only_lengths(self._call):
            return op.Unsqueeze(self._has_positive_length, [1, 2])
        is_per_head = mask_differs_by_head(self._call)
        return self.inputs.reduce_any(self.row_has_key, [1]) if is_per_head else op.Squeeze(self.row_has_key, [1])

    @cached_property
    def every_row_has_key(self) -> Value:
        """Boolean scalar: True if no row is fully masked. Only for calls whose masks are equal for all queries."""
        if has_only_lengths(self._call):
            return op.ReduceMin(self.inputs.lengths, keepdims=0) > 0
        return self.inputs.reduce_all(self.row_has_key)

    @cached_property
    def _is_attended(self) -> Value:
        """Booleans (B or 1, Tk, 1): True for keys that are unmasked for any query."""
        differs = self._call.mask_differs_by_query
        return op.Unsqueeze(self.inputs.reduce_any(self.attention_mask, [1, 2]) if differs else self.key_mask, [-1])

    def zero_masked(self, tensor: Value) -> Value:
        """Return keys or values (B, Tk, features) with zeros at keys that are masked for all queries."""
        return op.Where(self._is_attended, tensor, 0.0) if is_masked(self._call) else tensor

    def zero_fully_masked_queries(self) -> Value:
        """Return the queries (B, Tq, H D) with zeros in fully masked rows."""
        if not may_have_fully_masked_rows(self._call):
            return self.inputs.queries
        return op.Where(self.row_has_key_in_any_head, self.inputs.queries, 0.0)

    def zero_fully_masked_rows(self, outputs: Outputs) -> Outputs:
        """Return the output (B, Tq, H Dv) and the weights (B, H, Tq, Tk) with zeros in fully masked rows."""
        if not may_have_fully_masked_rows(self._call):
            return outputs
        output, *weights = outputs
        row_has_key = self.row_has_key_in_any_head if self._call.heads is None else self.row_has_key
        return self._zero_output_rows(output), *(op.Where(row_has_key, weight, 0.0) for weight in weights)

    def _zero_output_rows(self, output: Value) -> Value:
        """Return an output (B, Tq, H Dv) with zeros for each head in which a query is fully masked."""
        call = self._call
        if not mask_differs_by_head(call):
            return op.Where(self.row_has_key_in_any_head, output, 0.0)
        heads = unpack_heads(output, call.num_heads, call.value_size)
        zeroed = op.Where(op.Transpose(self.row_has_key, perm=[0, 2, 1, 3]), heads, 0.0)
        return pack_heads(zeroed, call.num_heads * call.value_size)
