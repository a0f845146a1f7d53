"""Split, merge, repeat and group attention heads."""

from collections.abc import Sequence

import numpy as np

from .._onnx.lazy_values import Value, op, reshape
from .._tracing.attention_calls import Call

OF_EXAMPLE = (1, 0, 2)  # the order of axes where there is no batch axis


def heads_apart(joined: Value, heads: int, size: int, *, axes: int = 2) -> Value:
    """Return (..., heads, size) of (..., heads size), with so many axes before."""
    return reshape(joined, *[0] * axes, heads, size)


def side_by_side(heads: Value, size_of_all: int, *, axes: int = 2) -> Value:
    """Return (..., heads size) of (..., heads, size), with so many axes before."""
    return reshape(heads, *[0] * axes, size_of_all)


def split_heads(joined: Value, heads: int, size: int, order: Sequence[int] = (0, 2, 1, 3)) -> Value:
    """Return heads (N, heads, T, size) of (N, T, heads size); `order` is that of the axes N, T, heads and size."""
    return op.Transpose(heads_apart(joined, heads, size, axes=len(order) - 2), perm=order)


def join_heads(heads: Value, size_of_all: int, order: Sequence[int] = (0, 2, 1, 3)) -> Value:
    """Return (N, T, heads size) of heads (N, heads, T, size)."""
    return side_by_side(op.Transpose(heads, perm=order), size_of_all, axes=len(order) - 2)


def heads_per_key(call: Call) -> int:
    """Return how many heads of queries a head of keys serves."""
    return call.num_heads // call.num_kv_heads


def repeat_heads(call: Call, heads: Value, batch: Value) -> Value:
    """Return each head of keys (N, G, ...) once for each of its heads of queries: (N, H, ...)."""
    if heads_per_key(call) == 1:
        return heads
    copies = op.Expand(op.Unsqueeze(heads, [2]), [1, 1, heads_per_key(call), 1, 1])
    return reshape(copies, batch, call.num_heads, op.Shape(heads, start=2), allowzero=1)


def repeat_joined(call: Call, joined: Value, size: int, *, axes: int = 2) -> Value:
    """Return the same of heads side by side, (..., H size) of (..., G size), with so many axes before."""
    if heads_per_key(call) == 1:
        return joined
    of_keys = reshape(joined, *[0] * axes, call.num_kv_heads, 1, size)
    copies = op.Expand(of_keys, [*[1] * (axes + 1), heads_per_key(call), 1])
    return side_by_side(copies, call.num_heads * size, axes=axes)


def split_groups(call: Call, joined: Value, size: int) -> Value:
    """Return (G, H / G rows, size) of (rows, H size): heads that share keys are rows of one."""
    groups, times = call.num_kv_heads, heads_per_key(call)
    if times == 1:
        return split_heads(joined, groups, size, OF_EXAMPLE)
    return reshape(op.Transpose(reshape(joined, 0, groups, times, size), perm=[1, 2, 0, 3]), groups, -1, size)


def joined_groups(call: Call, joined: Value, size: int, before: Sequence[Value], rows: Value) -> Value:
    """Return (..., H / G rows, G size) of (..., rows, H size), with two axes before."""
    groups, times = call.num_kv_heads, heads_per_key(call)
    if times == 1:
        return joined
    first = op.Transpose(reshape(joined, *before, rows, groups, times, size), perm=[0, 1, 4, 2, 3, 5])
    return reshape(first, *before, rows * times, groups * size)


def groups_of_heads(call: Call, heads: Value) -> Value:
    """Return (G, H / G rows, numbers) of (H, rows, numbers)."""
    if heads_per_key(call) == 1:
        return heads
    return reshape(heads, call.num_kv_heads, -1, op.Shape(heads, start=-1))


def heads_of_groups(call: Call, groups: Value, *sizes: Value | int) -> Value:
    """Return (H, rows, numbers) of (G, H / G rows, numbers), which `sizes` are."""
    return groups if heads_per_key(call) == 1 else reshape(groups, call.num_heads, *sizes)


def pad(value: Value, axes: int, *, last: int, fill: float | None = None) -> Value:
    """Return a tensor with so many more places at the end of the last of its axes."""
    # Pads as an array: given as `value_ints`, onnxruntime before 1.24 takes them for pads of another rank
    return op.Pad(value, np.array([*[0] * (2 * axes - 1), last]), fill)
