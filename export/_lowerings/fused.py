"""The `fused` lowering: the ONNX op `Attention` of opset 24, for the scaled dot product over all heads.

Lengths alone go in as `nonpad_kv_seqlen`. All masks together, where there are others, are the `attn_mask`, which must
have its query axis spelled out; with a bias it is of floats, the lowest float32 where a pair takes no part. The weights
are what the op returns in mode 3. Both outputs are reshaped, since onnx 1.23 infers a last axis of 0 where it does not
know it. Queries that see no key are zero by a selection of our own, since releases of onnxruntime differ there
(microsoft/onnxruntime#28958).

Keys and values that no query sees are hidden only where they leaked: the op multiplies them by weights of zero, and
adds the mask to their scores. See `first_try.py`. On a device they are hidden at once, since it would have to be waited
for to know whether something leaked.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import DOT_PRODUCT

from .._options import FUSED_OPSET as LOWEST_OPSET  # noqa: F401 - read by the table of lowerings
from .._tracing.attention_calls import Call
from .first_try import all_see, same, tried
from .masks import by_lengths_alone, hidden, is_masked, pairs, rows, zeros_without_keys


def fits(call: Call) -> bool:
    """Tell whether the op computes what a call does: it takes no scale but one above 0, in float32."""
    is_softmax_of_products = call.name == DOT_PRODUCT and call.normalizer == SOFTMAX
    return is_softmax_of_products and bool(np.float32(call.options["scale"]) > 0)


def body(call: Call, name: str = "fused") -> str:
    """Return the body of the ONNX function of a call that fits; `name` begins the names of its branches."""
    if not is_masked(call):
        mask = _mask("bias") if call.has_bias else ""
        return mask + _attention(call, "keys", "values", "only") + same(call, "only")
    by_lengths = _by_lengths(call)
    return f"""
        {"" if by_lengths else pairs(call)}
        {rows(call)}
        {all_see(call)}
        {"" if by_lengths else _mask_of_pairs(call)}
        {tried(call, partial(_attention, call), name, pairs(call) if by_lengths else "")}
    """


def hiding_body(call: Call) -> str:
    """Return a body that hides what no query sees before the operator reads it, so that nothing is asked in between."""
    if not is_masked(call):
        return body(call)
    return f"""
        {pairs(call) + rows(call) + hidden(call, "keys", "values")}
        {"" if _by_lengths(call) else _mask_of_pairs(call)}
        {_attention(call, "hidden_keys", "hidden_values", "only")}
        {"".join(zeros_without_keys(call, name, f"only_{name}") for name in call.outputs)}
    """


def _attention(call: Call, keys: str, values: str, form: str) -> str:
    """Lines that give `{form}_output` (N, Tq, H Dv), and `{form}_weights` if the call returns them."""
    masks = ""
    if _by_lengths(call):
        masks = ", , , , lengths"
    elif is_masked(call) or call.has_bias:
        masks = ", attention_mask"
    attributes = (
        f"q_num_heads = {call.num_heads}, kv_num_heads = {call.num_kv_heads}, scale = {call.options['scale']!r}"
    )
    weights = ""
    if call.returns_weights:
        attributes += ", qk_matmul_output_mode = 3"
        weights = f", , , {form}_four_axes"
    shape = f"{form}_shape = Constant <value_ints = [0, 0, {call.num_heads * call.value_size}]> ()"
    if not call.value_size:
        shape = f"""
            {form}_value_size = Shape <start = -1> (values)
            {form}_times = Constant <value_ints = [{call.num_heads // call.num_kv_heads}]> ()
            {form}_output_size = Mul ({form}_value_size, {form}_times)
            {form}_shape = Concat <axis = 0> (N, Tq, {form}_output_size)
        """
    return f"""
        {form}_as_inferred{weights} = Attention <{attributes}> (queries, {keys}, {values}{masks})
        {shape}
        {form}_output = Reshape ({form}_as_inferred, {form}_shape)
        {_weights(call, form) if call.returns_weights else ""}
    """


def _weights(call: Call, form: str) -> str:
    heads = "" if call.heads is None else f"{form}_heads, "
    return f"""
        {form}_heads = Constant <value_ints = [{call.num_heads}]> ()
        {form}_weights_shape = Concat <axis = 0> (N, {heads}Tq, Tk)
        {form}_weights = Reshape ({form}_four_axes, {form}_weights_shape)
    """


def _by_lengths(call: Call) -> bool:
    """Tell whether lengths are all that the operator has to know."""
    return by_lengths_alone(call) and not call.has_bias


def _mask_of_pairs(call: Call) -> str:
    if not call.has_bias:
        return _mask("pairs")
    return "biased_pairs = Where (pairs, bias, lowest)\n" + _mask("biased_pairs")


def _mask(source: str) -> str:
    """Lines that give `attention_mask` (N or 1, H or 1, Tq, Tk)."""
    return f"""
        leading_axes_of_pairs = Shape <end = 2> ({source})
        every_pair = Concat <axis = 0> (leading_axes_of_pairs, Tq, Tk)
        attention_mask = Expand ({source}, every_pair)
    """
