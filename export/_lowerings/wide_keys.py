"""Dot products by `MultiHeadAttention` with masks of keys, all examples at once: each key has one number more.

The operator takes masks of keys, but on CUDA in float32 it then keeps all scores, and a length of 0 means all keys.
Without one it runs in memory that stays small. So the mask becomes a feature: 1 in each query, and in a key 0, or a
large negative number where it is masked. Sizes are filled up to a multiple of 8, as the kernels want them: with zeros
in keys and values, so that it does not matter what stands in queries. Values get at least the size of keys: on CUDA the
kernel for float32 is chosen by that of values alone, and computes other products where keys are larger than it holds
(`DispatchBlockSize` in onnxruntime's fmha_launch_template.h; seen with 1.31.1, from 256 queries on).
"""

from __future__ import annotations

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import DOT_PRODUCT

from .._tracing.attention_calls import Call
from .flash import attention
from .given import Given
from .heads import heads_apart, pad, repeat_joined, side_by_side
from .masks import Masks
from .operators import Outputs, Value, op

MULTIPLE = 8
LEAST_SCALE = 1e-20  # with less a masked key is not far enough below the others; 0 would stand for the default
MASKED = -1e37  # far below any score, and a kernel may double it, or take it apart into three numbers of TF32


def fits(call: Call) -> bool:
    """Tell whether the operator computes what a call does, at least where there are as many queries as keys."""
    order = call.band in ((None, None), (None, 0))
    other = call.has_query_lengths or call.has_pair_mask or call.has_bias or call.returns_weights
    is_softmax_of_products = (call.name, call.normalizer) == (DOT_PRODUCT, SOFTMAX)
    if not (is_softmax_of_products and order and call.key_size and call.value_size) or other:
        return False
    return bool(np.float32(call.options["scale"]) > LEAST_SCALE)


def body(given: Given) -> Outputs:
    """Return the output of a call that fits."""
    call, keys, values, feature, row_sees = given.call, given.keys, given.values, None, None
    if call.has_lengths or call.has_keys_mask:
        seen = Masks(given).keys
        column = op.Unsqueeze(seen, [-1])
        keys, values = op.Where(column, keys, 0.0), op.Where(column, values, 0.0)
        feature = op.Unsqueeze(op.Where(column, 0.0, MASKED), [-1])
        row_sees = op.Unsqueeze(_row_sees(given, seen), [-1])
    size = _up(call.key_size + (feature is not None))
    value_size = max(size, _up(call.value_size))
    queries = _wide(given.queries, call.num_heads, call.key_size, size, fill=1.0)
    keys = _wide(keys, call.num_kv_heads, call.key_size, size, feature)
    values = _wide(values, call.num_kv_heads, call.value_size, value_size)
    keys, values = repeat_joined(call, keys, size), repeat_joined(call, values, value_size)
    output = _narrow(call, value_size, attention(call, queries, keys, values, unidirectional=int(call.band[1] == 0)))
    return (output if row_sees is None else op.Where(row_sees, output, 0.0),)


def _up(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


def _row_sees(given: Given, seen: Value) -> Value:
    """Return whether a query sees a key (N, Tq or 1), from which keys the masks leave."""
    first = op.ReduceMin(op.Where(seen, given.positions, given.Tk), [1], keepdims=1)
    return first <= given.query_numbers if given.call.band[1] == 0 else first < given.Tk


def _wide(joined: Value, heads: int, size: int, wide: int, feature: Value | None = None, *, fill: float = 0.0) -> Value:
    """Return (N, T, heads wide) of (N, T, heads size).

    Args:
        joined: What to widen.
        heads: How many heads lie side by side.
        size: How many numbers of each there are.
        wide: How many there are to be.
        feature: The first of the others (N, T, 1, 1), if it is not as these.
        fill: The others.
    """
    if wide == size:
        return joined
    of_heads = heads_apart(joined, heads, size)
    if feature is not None:
        of_heads = op.Concat(of_heads, op.Expand(feature, [1, 1, heads, 1]), axis=-1)
    return side_by_side(pad(of_heads, 4, last=wide - size - (feature is not None), fill=fill), heads * wide)


def _narrow(call: Call, wide: int, pooled: Value) -> Value:
    """Return (N, Tq, heads Dv) of values that have more numbers."""
    size = call.value_size
    if size == wide:
        return pooled
    of_heads = op.Slice(heads_apart(pooled, call.num_heads, wide), [0], [size], [-1])
    return side_by_side(of_heads, call.num_heads * size)
