"""The `fused` lowering: the ONNX op `Attention` of opset 24, for the scaled dot product.

Lengths go in as `nonpad_kv_seqlen`, other masks as `attn_mask`, which must have its query axis spelled out. The weights
are what the op returns in mode 3, reshaped since onnx 1.23 infers their last axis as 0 where Tk is symbolic. Masked
values are replaced by zeros before the op, which multiplies them by weights of zero, and so are masked keys, to whose
scores `attn_mask` is added: NaN would stay NaN. The op skips keys beyond a length. Queries that see no key are zero by
a selection of our own, since releases of onnxruntime differ there (microsoft/onnxruntime#28958).
"""

from __future__ import annotations

from .._composites import Call
from .._options import FUSED_OPSET as LOWEST_OPSET  # noqa: F401 - read by the table of lowerings


def fits(call: Call) -> bool:
    """Tell whether the op computes what a call does: a scale of 0 would stand for its default."""
    return call.name == "dot_product" and call.options["scale"] != 0


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call that fits."""
    lengths, mask = "valid_lens" in call.shapes, "mask" in call.shapes
    attributes = f"q_num_heads = 1, kv_num_heads = 1, scale = {call.options['scale']!r}"
    inputs = f"queries, {'hidden_keys' if mask else 'keys'}, {'hidden_values' if lengths or mask else 'values'}"
    if lengths:
        inputs += f", {'attention_mask' if mask else ''}, , , lengths"
    elif mask:
        inputs += ", attention_mask"
    masked = lengths or mask
    outputs = "pooled" if masked else "output"
    if call.returns_weights:
        attributes += ", qk_matmul_output_mode = 3"
        outputs += ", , , four_axes"
    return f"""
        {_SEEN_IN_LENGTH if lengths else ""}
        {_SEEN_IN_MASK if mask else ""}
        {_HIDDEN[lengths, mask]}
        {outputs} = Attention <{attributes}> ({inputs})
        {"output = Where (has_key, pooled, nothing)" if masked else ""}
        {_WEIGHTS if call.returns_weights else ""}
        {"" if not call.returns_weights else _SELECTED_WEIGHTS if masked else "weights = Identity (three_axes)"}
    """


_SEEN_IN_LENGTH = """
    lengths_column = Unsqueeze (lengths, one)
    in_length = Less (positions, lengths_column)
    two_axes = Constant <value_ints = [1, 2]> ()
    has_length = Greater (lengths, zero)
    has_key_in_length = Unsqueeze (has_length, two_axes)
"""
_SEEN_IN_MASK = """
    every_query = Concat <axis = 0> (N, Tq, Tk)
    mask_of_every_query = Expand (mask, every_query)
    attention_mask = Unsqueeze (mask_of_every_query, one)
    mask_numbers = Cast <to = 2> (mask)
    seen_by_any = ReduceMax <keepdims = 0> (mask_numbers, one)
    in_mask = Cast <to = 9> (seen_by_any)
    sees_any = ReduceMax (mask_numbers, minus_one)
    has_key_in_mask = Cast <to = 9> (sees_any)
"""
_HIDE = """
    seen_column = Unsqueeze (seen, minus_one)
    hidden_values = Where (seen_column, values, nothing)
"""
_HIDE_KEYS = "hidden_keys = Where (seen_column, keys, nothing)\n"
_HIDDEN = {  # by whether there are lengths, and a mask
    (False, False): "",
    (True, False): "seen = Identity (in_length) has_key = Identity (has_key_in_length)" + _HIDE,
    (False, True): "seen = Identity (in_mask) has_key = Identity (has_key_in_mask)" + _HIDE + _HIDE_KEYS,
    (True, True): "seen = And (in_length, in_mask) has_key = And (has_key_in_length, has_key_in_mask)"
    + _HIDE
    + _HIDE_KEYS,
}
_WEIGHTS = """
    shape_of_weights = Concat <axis = 0> (N, Tq, Tk)
    three_axes = Reshape (four_axes, shape_of_weights)
"""
_SELECTED_WEIGHTS = "weights = Where (has_key, three_axes, nothing)"
