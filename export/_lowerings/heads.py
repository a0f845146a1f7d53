"""Heads apart, and side by side on the last axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._tracing.attention_calls import Call
from .operators import Value, op, reshape

OF_EXAMPLE = (1, 0, 2)  # the order of axes where there is no batch axis


def split_heads(joined: Value, heads: int, size: int, order: Sequence[int] = (0, 2, 1, 3)) -> Value:
    """Return heads (N, heads, T, size) of (N, T, heads size); `order` is that of the axes N, T, heads and size."""
    return op.Transpose(reshape(joined, *[0] * (len(order) - 2), heads, size), perm=order)


def join_heads(heads: Value, size_of_all: int, order: Sequence[int] = (0, 2, 1, 3)) -> Value:
    """Return (N, T, heads size) of heads (N, heads, T, size)."""
    return reshape(op.Transpose(heads, perm=order), *[0] * (len(order) - 2), size_of_all)


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
    apart = reshape(joined, *[0] * axes, call.num_kv_heads, 1, size)
    copies = op.Expand(apart, [*[1] * (axes + 1), heads_per_key(call), 1])
    return reshape(copies, *[0] * axes, call.num_heads * size)


def pad(value: Value, axes: int, *, last: int, fill: float | None = None) -> Value:
    """Return a tensor with so many more places at the end of the last of its axes."""
    # Pads as an array: given as `value_ints`, onnxruntime before 1.24 takes them for pads of another rank
    return op.Pad(value, np.array([*[0] * (2 * axes - 1), last]), fill)
