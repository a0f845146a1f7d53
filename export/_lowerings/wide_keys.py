"""Dot products by `MultiHeadAttention` with masks of keys, all examples at once: each key has one number more.

The operator takes masks of keys, but on CUDA in float32 it then keeps all scores, and a length of 0 means all keys.
Without one it runs in memory that stays small. So the mask becomes a feature: 1 in each query, and in a key 0, or a
large negative number where it is masked. Sizes are filled up to a multiple of 8, as the kernels want them: with zeros
in keys and values, so that it does not matter what stands in queries.
"""

from __future__ import annotations

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import DOT_PRODUCT

from .._tracing.attention_calls import Call
from . import flash
from .masks import seen

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


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call that fits."""
    return f"""
        {_hidden(call) if _is_masked(call) else _AS_THEY_ARE}
        {_wide("queries", "wide_queries", call.num_heads, call.key_size, _size(call), fill=1.0)}
        {_wide("seen_keys", "wide_keys", call.num_kv_heads, call.key_size, _size(call), _mask_feature(call))}
        {_wide("seen_values", "wide_values", call.num_kv_heads, call.value_size, _up(call.value_size))}
        {flash.repeated(call, "wide_keys", "all_keys", _size(call), 2)}
        {flash.repeated(call, "wide_values", "all_values", _up(call.value_size), 2)}
        {flash.attention(call, "wide_queries", "all_keys", "all_values", "pooled", causal=call.band[1] == 0)}
        {_narrow(call)}
        {"output = Where (row_sees, narrow, nothing)" if _is_masked(call) else "output = Identity (narrow)"}
    """


def _is_masked(call: Call) -> bool:
    return call.has_lengths or call.has_keys_mask


def _up(size: int) -> int:
    return -(-size // MULTIPLE) * MULTIPLE


def _size(call: Call) -> int:
    return _up(call.key_size + _is_masked(call))


_AS_THEY_ARE = """
    seen_keys = Identity (keys)
    seen_values = Identity (values)
"""


def _hidden(call: Call) -> str:
    """Lines that give `seen_keys`, `seen_values`, and `row_sees` (N, Tq or 1, 1): whether a query sees a key."""
    causal = call.band[1] == 0
    return f"""
        {seen(call)}
        seen_column = Unsqueeze (seen, minus_one)
        seen_keys = Where (seen_column, keys, nothing)
        seen_values = Where (seen_column, values, nothing)
        seen_or_behind = Where (seen, positions, Tk)
        first_seen = ReduceMin <keepdims = 1> (seen_or_behind, one)
        row_sees_one = {"LessOrEqual (first_seen, query_numbers)" if causal else "Less (first_seen, Tk)"}
        row_sees = Unsqueeze (row_sees_one, minus_one)
    """


def _mask_feature(call: Call) -> str:
    if not _is_masked(call):
        return ""
    return f"""
        masked = Constant <value_float = {MASKED}> ()
        bias_of_keys = Where (seen_column, nothing, masked)
        wide_keys_feature = Unsqueeze (bias_of_keys, minus_one)
    """


def _wide(source: str, name: str, heads: int, size: int, wide: int, feature: str = "", *, fill: float = 0.0) -> str:
    """Lines that give `name` (N, T, heads wide) from (N, T, heads size): with a feature, if any, and filled up.

    Args:
        source: What to widen.
        name: The result.
        heads: How many heads lie side by side.
        size: How many numbers of each there are.
        wide: How many there are to be.
        feature: Lines that give the first of the others, `{name}_feature` (N, T, 1, 1).
        fill: The others.
    """
    if wide == size:
        return f"{name} = Identity ({source})\n"
    lines = f"""
        {name}_apart = Constant <value_ints = [0, 0, {heads}, {size}]> ()
        {name}_by_heads = Reshape ({source}, {name}_apart)
    """
    widened = f"{name}_by_heads"
    if feature:
        widened = f"{name}_with_feature"
        lines += f"""
            {feature}
            {name}_heads = Constant <value_ints = [1, 1, {heads}, 1]> ()
            {name}_features = Expand ({name}_feature, {name}_heads)
            {widened} = Concat <axis = -1> ({name}_by_heads, {name}_features)
        """
    return (
        lines
        + f"""
        {name}_missing = Constant <value = int64[8] {{0, 0, 0, 0, 0, 0, 0, {wide - size - bool(feature)}}}> ()
        {name}_fill = Constant <value_float = {fill}> ()
        {name}_filled = Pad ({widened}, {name}_missing, {name}_fill)
        {name}_together = Constant <value_ints = [0, 0, {heads * wide}]> ()
        {name} = Reshape ({name}_filled, {name}_together)
    """
    )


def _narrow(call: Call) -> str:
    """Lines that give `narrow` (N, Tq, heads Dv) from `pooled`, whose values have more numbers."""
    size, wide = call.value_size, _up(call.value_size)
    if size == wide:
        return "narrow = Identity (pooled)\n"
    return f"""
        pooled_apart = Constant <value_ints = [0, 0, {call.num_heads}, {wide}]> ()
        pooled_by_heads = Reshape (pooled, pooled_apart)
        true_size = Constant <value_ints = [{size}]> ()
        cut_heads = Slice (pooled_by_heads, zero, true_size, minus_one)
        narrow_together = Constant <value_ints = [0, 0, {call.num_heads * size}]> ()
        narrow = Reshape (cut_heads, narrow_together)
    """
