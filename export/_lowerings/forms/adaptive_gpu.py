"""Lowering `adaptive` for GPUs: whole batch, no loop over examples; control flow by sizes only.

A branch that reads a tensor waits for the device, so sizes decide, except for the overflow guard of additive scores,
once in each call. The first form whose condition holds computes a call; `UnblockedLimits` has the sizes, chosen by the
timings in docs/gpu.md.

- Additive scores: plain operators while features (B H Tq Tk U) are few, else blocks of queries (`additive_batched.py`).
- Few rows B Tq of one head over many keys: plain operators in float32. Kernels of the attention operators have one
  block of threads for 64 queries, so few rows leave most of a device idle.
- Many scores without key masks: onnxruntime's operator `MultiHeadAttention`, which stores no scores.
- Other softmaxes of dot products: the operator `Attention`, if the opset has it.
- Other calls: plain operators, in blocks of queries if scores (B H Tq Tk) are many.

Outputs are (B, Tq, H Dv) and, if returned, weights (B, H, Tq, Tk), without heads (B, Tq, Tk).
"""

import math

from keras_attn._pooling.scoring import ADDITIVE

from ..._onnx.lazy_values import Outputs, Value, if_else, op
from ..._onnxruntime_releases import FUSED_OPSET
from ..._options import FLOAT32
from ..._thresholds import UnblockedLimits
from ..._tracing.attention_calls import TracedCall
from ..additive_without_tanh import count_units
from ..batch_blocks import attend_in_blocks
from ..body_inputs import BodyInputs
from ..forms import additive_batched, fused, multi_head_attention_op, portable
from ..masks import may_have_fully_masked_rows

LOWEST_OPSET = 18
MAX_BLOCK_SCORES = 2**24  # in a block, of all examples and heads: 64 MB in float32
UNBLOCKED_LIMITS = UnblockedLimits()
ALWAYS_BLOCKED = UnblockedLimits(*[-1] * len(UNBLOCKED_LIMITS))
# The attention operators compute in float16, plain operators in float32: few rows are no reason for the latter
FLOAT16_UNBLOCKED_LIMITS = UNBLOCKED_LIMITS._replace(queries=-1)
HEAD_SIZE_MULTIPLE = 8  # with other head sizes, `MultiHeadAttention` stores all scores
# A key has 2^4 terms for 4 units; with fewer than 16 queries, the terms are more elements than the key's quotients
MAX_FEW_QUERIES = 15
# The kernels loop over the keys of a row in sequence, which takes long from this number of keys on if rows are few
MIN_KEYS_FOR_FEW_ROWS = 256
KERNEL_HEAD_SIZES = (64, 128)  # largest D and Dv of two kernels; a third one takes any D


def choose_limits(precision: str = FLOAT32, *, force_large_form: bool = False) -> UnblockedLimits:
    """Return the limits for a precision, or limits that force the large forms at all sizes."""
    if force_large_form:
        return ALWAYS_BLOCKED
    return FLOAT16_UNBLOCKED_LIMITS if precision == "float16" else UNBLOCKED_LIMITS


def build_body(inputs: BodyInputs, limits: UnblockedLimits) -> Outputs:
    """Return the outputs of a call."""
    call = inputs.call
    if call.score == ADDITIVE:
        has_few_features = _fits_unblocked(inputs, limits.additive)
        fits_few_queries = _fits_unblocked(inputs, limits.additive_few_queries)
        has_few_queries = fits_few_queries & op.Squeeze(inputs.Tq <= [MAX_FEW_QUERIES])
        blocked = additive_batched.build_body(inputs, limits.additive_quotients)
        return if_else(has_few_features | has_few_queries, portable.build_body(inputs), blocked)
    if limits.queries < 0 or call.num_heads > 1 or not fits_attention_op(call):
        return _choose_operator(inputs, limits)
    rows, pairs = inputs.B * inputs.Tq, inputs.B * inputs.Tq * inputs.Tk
    has_few_rows = (rows <= [limits.queries]) & (inputs.Tk >= [MIN_KEYS_FOR_FEW_ROWS]) & (pairs <= [limits.blocks])
    return if_else(op.Squeeze(has_few_rows), portable.build_body(inputs), _choose_operator(inputs, limits))


def find_unsupported_reason(call: TracedCall) -> str:
    """Return the reason if the operator `Attention` does not compute a call on CUDA, or an empty text."""
    if reason := fused.find_unsupported_reason(call):
        return reason
    if call.returns_weights:  # microsoft/onnxruntime#28351
        return "the operator `Attention` returns no weights on CUDA"
    return "" if _has_float32_kernel(call) else "the operator `Attention` has no kernel on CUDA for its head sizes"


def fits_attention_op(call: TracedCall) -> bool:
    """Return True if the operator `Attention` computes a call on CUDA."""
    return not find_unsupported_reason(call)


def fits_multi_head_attention_op(call: TracedCall) -> bool:
    """Return True if `MultiHeadAttention` computes a call with Tq = Tk without storing scores."""
    if call.window not in ((None, None), (None, 0)) or may_have_fully_masked_rows(call) or call.has_bias:
        return False
    return fits_attention_op(call) and not (call.key_size % HEAD_SIZE_MULTIPLE or call.value_size % HEAD_SIZE_MULTIPLE)


def _has_float32_kernel(call: TracedCall) -> bool:
    """Return True if a float32 kernel on CUDA computes a call correctly with its head sizes D and Dv."""
    # `DispatchBlockSize` in onnxruntime's fmha_launch_template.h chooses a kernel by Dv alone. If D is larger than the
    # kernel allows, outputs are wrong from 256 queries on, in both operators (onnxruntime 1.31.1; see docs/gpu.md)
    if not (call.key_size and call.value_size):  # dynamic sizes
        return False
    return call.key_size <= next((size for size in KERNEL_HEAD_SIZES if call.value_size <= size), math.inf)


def _choose_operator(inputs: BodyInputs, limits: UnblockedLimits) -> Outputs:
    """Return the outputs by `MultiHeadAttention` if it fits and scores are many, else by another form."""
    call = inputs.call
    if not fits_multi_head_attention_op(call):
        return _choose_masked_form(inputs, limits)
    has_many_scores = op.Not(_fits_unblocked(inputs, limits.one_operator))
    if call.window[1] == 0:
        # If Tq != Tk, providers of onnxruntime align causal masks differently (microsoft/onnxruntime#29020)
        has_many_scores = op.And(has_many_scores, op.Squeeze(op.Equal(inputs.Tq, inputs.Tk)))
    attended = multi_head_attention_op.attend_all_keys(inputs, unidirectional=int(call.window[1] == 0))
    return if_else(has_many_scores, attended, _choose_masked_form(inputs, limits))


def _choose_masked_form(inputs: BodyInputs, limits: UnblockedLimits) -> Outputs:
    """Return the outputs by `Attention`, plain operators, or blocks of plain operators."""
    call = inputs.call
    if fits_attention_op(call) and inputs.opset >= FUSED_OPSET:
        return fused.build_body_with_zeroed_inputs(inputs)
    if call.returns_weights:  # the weights are as large as the scores, so blocks save no memory
        return portable.build_body(inputs)
    return if_else(_fits_unblocked(inputs, limits.blocks), portable.build_body(inputs), block_body(inputs))


def block_body(inputs: BodyInputs) -> Outputs:
    """Return the outputs by plain operators in blocks of queries."""
    scores_per_query = inputs.B * inputs.Tk * inputs.call.num_heads
    return attend_in_blocks(inputs, portable.build_body, scores_per_query, MAX_BLOCK_SCORES)


def _fits_unblocked(inputs: BodyInputs, limit: int) -> Value:
    """Return a boolean scalar: whether a call has at most `limit` scores, or features of additive scores."""
    call = inputs.call
    elements_per_pair = call.num_heads * (count_units(call) if call.score == ADDITIVE else 1)
    return op.Squeeze(inputs.B * inputs.Tq * inputs.Tk * elements_per_pair <= [limit])
