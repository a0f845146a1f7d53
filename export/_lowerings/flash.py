"""Dot products by `MultiHeadAttention`, one of onnxruntime's own operators: without a mask it keeps no Tq Tk scores.

Where masks of keys keep some out, one example goes after another, over the keys of it that take part. No key takes part
in an example without any: the first stands in, and the output is zeros.
"""

from __future__ import annotations

from .._tracing.attention_calls import Call
from .masks import all_of, any_of, is_masked, may_lack_keys
from .text import CONTRIB, chosen


def body(call: Call, name: str = "flash", full: str | None = None) -> str:
    """Return the body of a call whose masks are of keys, without weights.

    Args:
        call: The call.
        name: What the names of its branches begin with.
        full: What to do where all keys take part, in place of the operator.
    """
    if not is_masked(call):
        return over_all(call)
    return f"""
        {all_of("all_take_part", "keys_seen") if call.has_keys_mask else _IF_ALL_LONG}
        {chosen(call, "all_take_part", full or over_all(call), _over_examples(call), name)}
    """


_IF_ALL_LONG = """
    shortest = ReduceMin <keepdims = 0> (lengths)
    all_take_part = GreaterOrEqual (shortest, Tk_scalar)
"""


def over_all(call: Call) -> str:
    """Return the body of a call in which all keys take part."""
    return f"""
        {repeated(call, "keys", "all_keys", call.key_size, 2)}
        {repeated(call, "values", "all_values", call.value_size, 2)}
        {attention(call, "queries", "all_keys", "all_values", "output")}
    """


def _over_examples(call: Call) -> str:
    some_keys = _SEEN_KEYS if call.has_keys_mask else _FIRST_KEYS
    masks = "keys_seen" if call.has_keys_mask else "lengths"
    typed = "bool[?] seen_keys" if call.has_keys_mask else "int64 length"
    has_key = any_of("has_key", "keys_seen", "one") if call.has_keys_mask else "has_key = Greater (lengths, zero)\n"
    assert may_lack_keys(call)
    return f"""
        pooled = Scan <num_scan_inputs = 4, body = example
            ({typed}, float[?, ?] query, float[?, ?] every_key, float[?, ?] every_value) => (float[?, ?] of_example) {{
            {some_keys}
            {repeated(call, "key", "example_key", call.key_size, 1)}
            {repeated(call, "value", "example_value", call.value_size, 1)}
            query_batch = Unsqueeze (query, zero)
            key_batch = Unsqueeze (example_key, zero)
            value_batch = Unsqueeze (example_value, zero)
            {attention(call, "query_batch", "key_batch", "value_batch", "example_batch")}
            of_example = Squeeze (example_batch, zero)
        }}> ({masks}, queries, keys, values)
        {has_key}
        axes_of_rows = Constant <value_ints = [1, 2]> ()
        has_key_in_rows = Unsqueeze (has_key, axes_of_rows)
        output = Where (has_key_in_rows, pooled, nothing)
    """


_FIRST_KEYS = """
    count = Unsqueeze (length, zero)
    at_least_one = Max (count, one)
    key = Slice (every_key, zero, at_least_one, zero)
    value = Slice (every_value, zero, at_least_one, zero)
"""
_SEEN_KEYS = """
    column_of_numbers = NonZero (seen_keys)
    numbers = Squeeze (column_of_numbers, zero)
    count = Shape (numbers)
    at_least_one = Max (count, one)
    numbers_and_first = Concat <axis = 0> (numbers, zero)
    some_numbers = Slice (numbers_and_first, zero, at_least_one)
    key = Gather <axis = 0> (every_key, some_numbers)
    value = Gather <axis = 0> (every_value, some_numbers)
"""


def attention(call: Call, queries: str, keys: str, values: str, name: str, *, causal: bool = False) -> str:
    """Lines that give `name`, with the type and the shape that onnx cannot tell of onnxruntime's operators."""
    attributes = f"num_heads = {call.num_heads}, scale = {call.options['scale']!r}"
    attributes += ", unidirectional = 1" if causal else ""
    return f"""
        {name}_untyped = {CONTRIB}.MultiHeadAttention <{attributes}> ({queries}, {keys}, {values})
        {name}_typed = CastLike ({name}_untyped, {values})
        {name}_size = Shape <start = -1> ({values})
        {name}_places = Shape <end = -1> ({queries})
        {name}_true_shape = Concat <axis = 0> ({name}_places, {name}_size)
        {name} = Reshape ({name}_typed, {name}_true_shape)
    """


def repeated(call: Call, source: str, name: str, size: int, places: int) -> str:
    """Lines that put each head of keys (..., G D) beside itself for each of its heads of queries: (..., H D)."""
    times = call.num_heads // call.num_kv_heads
    if times == 1:
        return f"{name} = Identity ({source})\n"
    as_they_are = ", ".join(["0"] * places)
    return f"""
        {name}_one_each = Constant <value_ints = [{as_they_are}, {call.num_kv_heads}, 1, {size}]> ()
        {name}_apart = Reshape ({source}, {name}_one_each)
        {name}_times = Constant <value_ints = [{", ".join(["1"] * (places + 1))}, {times}, 1]> ()
        {name}_side_by_side = Expand ({name}_apart, {name}_times)
        {name}_together = Constant <value_ints = [{as_they_are}, {call.num_heads * size}]> ()
        {name} = Reshape ({name}_side_by_side, {name}_together)
    """
