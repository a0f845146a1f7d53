"""Lowering `fused`: scaled dot-product attention as ONNX's `Attention` (opset 24).

If lengths are the only mask, they are the input `nonpad_kv_seqlen`. Otherwise all masks together are `attn_mask`, whose
query axis must have its full length; with a bias, `attn_mask` is the bias, and FLOAT32_MIN at masked pairs. The weights
are the operator's output in mode 3. Outputs of fully masked rows are set to zero here, since they differ between
releases of onnxruntime (microsoft/onnxruntime#28958).

The operator multiplies masked values by weights of zero, and adds the mask to the scores: NaN leaks. On a CPU, keys and
values that are masked for all queries are set to zero only if something leaked (`nan_fallback.py`). On a device they
are always set to zero, since the check would wait for the device.
"""

from functools import partial

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT

from ..._onnx.lazy_values import FLOAT32_MIN, Outputs, Value, concat_shape, multi_output, op, reshape
from ..._onnxruntime_releases import FUSED_OPSET
from ..._tracing.attention_calls import TracedCall
from ..body_inputs import BodyInputs
from ..heads import get_query_group_size
from ..masks import Masks, has_only_lengths, is_masked
from ..nan_fallback import attend_with_nan_fallback

LOWEST_OPSET = FUSED_OPSET


def find_unsupported_reason(call: TracedCall) -> str:
    """Return the reason if the operator does not compute a call, or an empty text."""
    if call.score != DOT_PRODUCT or call.normalizer != SOFTMAX:
        return "the operator `Attention` computes a softmax of dot products only"
    return "" if np.float32(call.options["scale"]) > 0 else "the operator `Attention` takes a scale above 0 only"


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a supported call and, if returned, its weights."""
    masks = Masks(inputs)
    attention = partial(_call_operator, inputs, _list_mask_inputs(masks))
    if is_masked(inputs.call) and not inputs.call.may_leak_nan:
        return attend_with_nan_fallback(masks, attention)
    return masks.zero_fully_masked_rows(attention(inputs.keys, inputs.values))


def build_body_with_zeroed_inputs(inputs: BodyInputs) -> Outputs:
    """Return the outputs of `build_body`, with masked keys and values always set to zero, so that no branch waits."""
    masks = Masks(inputs)
    mask_inputs = _list_mask_inputs(masks)
    keys, values = masks.zero_masked(inputs.keys), masks.zero_masked(inputs.values)
    return masks.zero_fully_masked_rows(_call_operator(inputs, mask_inputs, keys, values))


def _list_mask_inputs(masks: Masks) -> list[Value | None]:
    """Return the operator's inputs after the values: a mask (B or 1, H or 1, Tq, Tk), or lengths (B,) as the last."""
    inputs, call = masks.inputs, masks.inputs.call
    if has_only_lengths(call) and not call.has_bias:
        return [None, None, None, inputs.lengths]
    if not (is_masked(call) or call.has_bias):
        return []
    mask = masks.attention_mask if is_masked(call) else inputs.bias
    if is_masked(call) and call.has_bias:
        mask = op.Where(mask, inputs.bias, FLOAT32_MIN)
    return [mask if call.full_masks else op.Expand(mask, concat_shape(op.Shape(mask, end=2), inputs.Tq, inputs.Tk))]


def _call_operator(inputs: BodyInputs, mask_inputs: list[Value | None], keys: Value, values: Value) -> Outputs:
    """Return the operator's outputs for keys (B, Tk, Hkv D), values (B, Tk, Hkv Dv) and `_list_mask_inputs`."""
    call = inputs.call
    attributes = {"q_num_heads": call.num_heads, "kv_num_heads": call.num_kv_heads, "scale": call.options["scale"]}
    is_used = [True]
    if call.returns_weights:
        attributes["qk_matmul_output_mode"] = 3
        is_used = [True, False, False, True]
    output, *weights = multi_output("Attention", is_used, inputs.queries, keys, values, *mask_inputs, **attributes)
    # Both outputs are reshaped, since onnx 1.23 infers a last axis of 0 if its length is unknown
    if call.value_size:
        output = reshape(output, 0, 0, call.num_heads * call.value_size)
    else:
        output_size = op.Shape(inputs.values, start=-1) * get_query_group_size(call)
        output = reshape(output, inputs.B, inputs.Tq, output_size)
    heads = [] if call.heads is None else [call.num_heads]
    return output, *(reshape(weight, inputs.B, *heads, inputs.Tq, inputs.Tk) for weight in weights)
