"""Split, merge, repeat and group attention heads.

Packed heads are one axis of length heads * size; unpacked heads have two axes (heads, size). The H / Hkv query heads
that share a head of keys are a query group.
"""

from collections.abc import Sequence

import numpy as np

from .._onnx.lazy_values import Value, op, reshape
from .._tracing.attention_calls import TracedCall

BATCHED_AXIS_ORDER = (0, 2, 1, 3)  # (B, T, heads, size) to (B, heads, T, size), and back
UNBATCHED_AXIS_ORDER = (1, 0, 2)  # (T, heads, size) to (heads, T, size), and back


def unpack_heads(packed: Value, heads: int, size: int, *, axes: int = 2) -> Value:
    """Reshape (..., heads size) to (..., heads, size); `axes` is the number of leading axes."""
    return reshape(packed, *[0] * axes, heads, size)


def pack_heads(unpacked: Value, packed_size: int, *, axes: int = 2) -> Value:
    """Reshape (..., heads, size) to (..., packed_size = heads size); `axes` is the number of leading axes."""
    return reshape(unpacked, *[0] * axes, packed_size)


def split_heads(packed: Value, heads: int, size: int, order: Sequence[int] = BATCHED_AXIS_ORDER) -> Value:
    """Transpose (B, T, heads size) or (T, heads size) to (B, heads, T, size) or the `order` of these axes."""
    return op.Transpose(unpack_heads(packed, heads, size, axes=len(order) - 2), perm=order)


def merge_heads(heads: Value, packed_size: int, order: Sequence[int] = BATCHED_AXIS_ORDER) -> Value:
    """Transpose (B, heads, T, size) or (heads, T, size) to (B, T, packed_size) or (T, packed_size)."""
    return pack_heads(op.Transpose(heads, perm=order), packed_size, axes=len(order) - 2)


def get_query_group_size(call: TracedCall) -> int:
    """Return H / Hkv, the number of query heads that share a head of keys."""
    return call.num_heads // call.num_kv_heads


def repeat_kv_heads(call: TracedCall, heads: Value, batch: Value) -> Value:
    """Repeat heads (B, Hkv, ...) for the query heads of their groups: (B, H, ...); `batch` is the size B."""
    if get_query_group_size(call) == 1:
        return heads
    copies = op.Expand(op.Unsqueeze(heads, [2]), [1, 1, get_query_group_size(call), 1, 1])
    return reshape(copies, batch, call.num_heads, op.Shape(heads, start=2), allowzero=1)


def repeat_packed_kv_heads(call: TracedCall, packed: Value, size: int, *, axes: int = 2) -> Value:
    """Repeat packed heads (..., Hkv size) for the query heads of their groups: (..., H size), after `axes` axes."""
    if get_query_group_size(call) == 1:
        return packed
    unpacked = reshape(packed, *[0] * axes, call.num_kv_heads, 1, size)
    copies = op.Expand(unpacked, [*[1] * (axes + 1), get_query_group_size(call), 1])
    return pack_heads(copies, call.num_heads * size, axes=axes)


def split_query_groups(call: TracedCall, packed: Value, size: int) -> Value:
    """Transpose packed queries (rows, H size) to (Hkv, H / Hkv rows, size): the heads of a group become rows."""
    groups, group_size = call.num_kv_heads, get_query_group_size(call)
    if group_size == 1:
        return split_heads(packed, groups, size, UNBATCHED_AXIS_ORDER)
    return reshape(op.Transpose(reshape(packed, 0, groups, group_size, size), perm=[1, 2, 0, 3]), groups, -1, size)


def fold_packed_query_groups(
    call: TracedCall, packed: Value, size: int, leading: Sequence[Value], rows: Value
) -> Value:
    """Transpose (..., rows, H size) to (..., H / Hkv rows, Hkv size), with two `leading` sizes and the size `rows`."""
    groups, group_size = call.num_kv_heads, get_query_group_size(call)
    if group_size == 1:
        return packed
    heads_first = op.Transpose(reshape(packed, *leading, rows, groups, group_size, size), perm=[0, 1, 4, 2, 3, 5])
    return reshape(heads_first, *leading, rows * group_size, groups * size)


def fold_query_groups(call: TracedCall, heads: Value) -> Value:
    """Reshape (H, rows, columns) to (Hkv, H / Hkv rows, columns)."""
    if get_query_group_size(call) == 1:
        return heads
    return reshape(heads, call.num_kv_heads, -1, op.Shape(heads, start=-1))


def unfold_query_groups(call: TracedCall, groups: Value, *sizes: Value | int) -> Value:
    """Reshape (Hkv, H / Hkv rows, columns) to (H, rows, columns); `sizes` are rows and columns."""
    return groups if get_query_group_size(call) == 1 else reshape(groups, call.num_heads, *sizes)


def pad_last_axis(tensor: Value, axes: int, *, count: int, fill: float | None = None) -> Value:
    """Append `count` elements of a value, 0 by default, to the last of the `axes` axes of a tensor."""
    # The pads are an array: onnxruntime before 1.24 applies pads in the attribute `value_ints` to another rank
    return op.Pad(tensor, np.array([*[0] * (2 * axes - 1), count]), fill)
