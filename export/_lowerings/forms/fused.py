"""Lowering `fused`: scaled dot-product attention as ONNX's `Attention` (opset 24).

Lengths alone go in as `nonpad_kv_seqlen`. All masks together, where there are others, are the `attn_mask`, which must
have its query axis spelled out; with a bias it is of floats, the lowest float32 where a pair takes no part. The weights
are what the op returns in mode 3. Both outputs are reshaped, since onnx 1.23 infers a last axis of 0 where it does not
know it. Queries that see no key are zero by a selection of our own, since releases of onnxruntime differ there
(microsoft/onnxruntime#28958).

Keys and values that no query sees are hidden only where they leaked: the op multiplies them by weights of zero, and
adds the mask to their scores. See `nan_fallback.py`. On a device they are hidden at once, since it would have to be
waited for to know whether something leaked.
"""

from functools import partial

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT

from ..._onnx.lazy_values import LOWEST, Outputs, Value, op, outputs_of, reshape, vector
from ..._onnxruntime_releases import FUSED_OPSET
from ..._tracing.attention_calls import Call
from ..body_inputs import Given
from ..heads import heads_per_key
from ..masks import Masks, by_lengths_alone, is_masked
from ..nan_fallback import tried

LOWEST_OPSET = FUSED_OPSET


def refusal(call: Call) -> str:
    """Return the reason if the operator does not compute a call, or an empty text."""
    if call.name != DOT_PRODUCT or call.normalizer != SOFTMAX:
        return "the operator `Attention` computes a softmax of dot products only"
    return "" if np.float32(call.options["scale"]) > 0 else "the operator `Attention` takes a scale above 0 only"


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    masks = Masks(given)
    attention = partial(_attention, given, _masks(masks))
    if is_masked(given.call) and not given.call.leaks:
        return tried(masks, attention)
    return masks.zeroed(attention(given.keys, given.values))


def hiding_body(given: Given) -> Outputs:
    """Return the same, with what no query sees hidden before the operator, so that nothing is asked in between."""
    masks = Masks(given)
    return masks.zeroed(_attention(given, _masks(masks), masks.hidden(given.keys), masks.hidden(given.values)))


def _masks(masks: Masks) -> list[Value | None]:
    """Return what the operator reads after the values: a mask (N or 1, H or 1, Tq, Tk), or lengths."""
    given, call = masks.given, masks.given.call
    if by_lengths_alone(call) and not call.has_bias:
        return [None, None, None, given.lengths]
    if not (is_masked(call) or call.has_bias):
        return []
    mask = masks.pairs if is_masked(call) else given.bias
    if is_masked(call) and call.has_bias:
        mask = op.Where(mask, given.bias, LOWEST)
    return [mask if call.whole else op.Expand(mask, vector(op.Shape(mask, end=2), given.Tq, given.Tk))]


def _attention(given: Given, masks: list[Value | None], keys: Value, values: Value) -> Outputs:
    call = given.call
    attributes = {"q_num_heads": call.num_heads, "kv_num_heads": call.num_kv_heads, "scale": call.options["scale"]}
    wanted = [True]
    if call.returns_weights:
        attributes["qk_matmul_output_mode"] = 3
        wanted = [True, False, False, True]
    output, *weights = outputs_of("Attention", wanted, given.queries, keys, values, *masks, **attributes)
    if call.value_size:
        output = reshape(output, 0, 0, call.num_heads * call.value_size)
    else:
        size = op.Shape(given.values, start=-1) * heads_per_key(call)
        output = reshape(output, given.N, given.Tq, size)
    heads = [] if call.heads is None else [call.num_heads]
    return output, *(reshape(each, given.N, *heads, given.Tq, given.Tk) for each in weights)
