"""The `fused` lowering: the ONNX op `Attention` of opset 24, for the scaled dot product.

Lengths alone go in as `nonpad_kv_seqlen`. All masks together, where there are others, are the `attn_mask`, which must
have its query axis spelled out. The weights are what the op returns in mode 3. Both outputs are reshaped, since onnx
1.23 infers a last axis of 0 where it does not know it. Masked values are replaced by zeros before the op, which
multiplies them by weights of zero, and so are masked keys, to whose scores `attn_mask` is added: NaN would stay NaN.
The op skips keys beyond a length. Queries that see no key are zero by a selection of our own, since releases of
onnxruntime differ there (microsoft/onnxruntime#28958).
"""

from __future__ import annotations

import numpy as np

from .._options import FUSED_OPSET as LOWEST_OPSET  # noqa: F401 - read by the table of lowerings
from .._tracing.attention_calls import Call


def fits(call: Call) -> bool:
    """Tell whether the op computes what a call does: it takes no scale but one above 0, in float32."""
    return call.name == "dot_product" and bool(np.float32(call.options["scale"]) > 0)


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call that fits."""
    lengths, mask = "valid_lens" in call.shapes, "mask" in call.shapes
    masked = lengths or mask
    attributes = f"q_num_heads = 1, kv_num_heads = 1, scale = {call.options['scale']!r}"
    outputs = "pooled_as_inferred"
    if call.returns_weights:
        attributes += ", qk_matmul_output_mode = 3"
        outputs += ", , , four_axes"
    if mask:
        before = (_BOTH if lengths else "pairs = Identity (mask)") + _MASK
        inputs = "queries, hidden_keys, hidden_values, attention_mask"
    elif lengths:
        before, inputs = _LENGTHS, "queries, keys, hidden_values, , , , lengths"
    else:
        before, inputs = "", "queries, keys, values"
    return f"""
        {before}
        {outputs} = Attention <{attributes}> ({inputs})
        {_POOLED}
        output = {"Where (has_key, pooled, nothing)" if masked else "Identity (pooled)"}
        {_WEIGHTS if call.returns_weights else ""}
        {_selected_weights(masked) if call.returns_weights else ""}
    """


_LENGTHS = """
    lengths_column = Unsqueeze (lengths, one)
    seen = Less (positions, lengths_column)
    seen_column = Unsqueeze (seen, minus_one)
    hidden_values = Where (seen_column, values, nothing)
    two_axes = Constant <value_ints = [1, 2]> ()
    has_length = Greater (lengths, zero)
    has_key = Unsqueeze (has_length, two_axes)
"""
_BOTH = """
    two_axes = Constant <value_ints = [1, 2]> ()
    lengths_columns = Unsqueeze (lengths, two_axes)
    in_length = Less (positions, lengths_columns)
    pairs = And (mask, in_length)
"""
_MASK = """
    every_query = Concat <axis = 0> (N, Tq, Tk)
    pairs_of_every_query = Expand (pairs, every_query)
    attention_mask = Unsqueeze (pairs_of_every_query, one)
    numbers = Cast <to = 2> (pairs)
    seen_by_any = ReduceMax <keepdims = 0> (numbers, one)
    seen = Cast <to = 9> (seen_by_any)
    seen_column = Unsqueeze (seen, minus_one)
    hidden_keys = Where (seen_column, keys, nothing)
    hidden_values = Where (seen_column, values, nothing)
    sees_any = ReduceMax (numbers, minus_one)
    has_key = Cast <to = 9> (sees_any)
"""
_POOLED = """
    value_size = Shape <start = -1> (values)
    shape_of_pooled = Concat <axis = 0> (N, Tq, value_size)
    pooled = Reshape (pooled_as_inferred, shape_of_pooled)
"""
_WEIGHTS = """
    shape_of_weights = Concat <axis = 0> (N, Tq, Tk)
    three_axes = Reshape (four_axes, shape_of_weights)
"""


def _selected_weights(masked: bool) -> str:
    return f"weights = {'Where (has_key, three_axes, nothing)' if masked else 'Identity (three_axes)'}"
