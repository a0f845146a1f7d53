"""Lowering `adaptive` for GPUs: whole batch, no loop over examples; control flow by sizes only.

A branch that depends on a tensor would wait for the device, so that sizes decide, but for one guard of additive scores
in each call. The first form whose conditions are met computes a call; `UnblockedLimits` has the sizes.

- Additive scores: plain operators while features are few, else blocks of queries (`additive_batched.py`).
- A few rows of one head over many keys: plain operators in float32. The operators leave most of a device idle there.
- Many pairs without masks of keys: onnxruntime's own operator `MultiHeadAttention`.
- Other softmaxes of dot products: the operator `Attention`, if the opset has it.
- Other calls: plain operators while pairs are few, since each operator takes longer to start than a device computes;
  else blocks of queries in plain operators.
"""

import math

from keras_attn._pooling.scoring import ADDITIVE

from ..._onnx.lazy_values import Outputs, Value, branch, op
from ..._onnxruntime_releases import FUSED_OPSET
from ..._options import FLOAT32
from ..._thresholds import UnblockedLimits
from ..._tracing.attention_calls import Call
from ..additive_without_tanh import units
from ..batch_blocks import by_blocks
from ..body_inputs import Given
from ..forms import additive_batched, fused, multi_head_attention_op, portable
from ..masks import may_lack_keys

LOWEST_OPSET = 18
SCORES = 2**24  # numbers in the scores of a block, of all examples and heads: 64 MB
AT_ONCE = UnblockedLimits()
NOTHING = UnblockedLimits(*[-1] * len(AT_ONCE))
IN_FLOAT16 = AT_ONCE._replace(rows=-1)  # in which the operators compute, and plain operators do not
MULTIPLE = 8  # of which sizes are where the kernels of onnxruntime's own operator keep no scores
FEW_QUERIES = 15  # with fewer than 16, the terms of an additive key are more numbers than its quotients
LONG = 256  # keys that a kernel of the operators goes over one after another, and the few of some rows work on alone
HELD = (64, 128)  # sizes up to which there is a kernel of its own, for keys of the same sizes


def limits_of(precision: str = FLOAT32, *, only_large: bool = False) -> UnblockedLimits:
    """Return the limits for a file of a precision, or those of the forms for large sizes at all sizes."""
    if only_large:
        return NOTHING
    return IN_FLOAT16 if precision == "float16" else AT_ONCE


def body(given: Given, limits: UnblockedLimits) -> Outputs:
    """Return the outputs of a call."""
    call = given.call
    if call.name == ADDITIVE:
        are_few = _are_few(given, limits.additive)
        of_few_queries = _are_few(given, limits.additive_few_queries) & op.Squeeze(given.Tq <= [FEW_QUERIES])
        in_blocks = additive_batched.body(given, limits.additive_quotients)
        return branch(are_few | of_few_queries, portable.body(given), in_blocks)
    if limits.rows < 0 or call.num_heads > 1 or not uses_fused(call):
        return _with_operators(given, limits)
    rows, pairs = given.N * given.Tq, given.N * given.Tq * given.Tk
    few_rows = (rows <= [limits.rows]) & (given.Tk >= [LONG]) & (pairs <= [limits.blocks])
    return branch(op.Squeeze(few_rows), portable.body(given), _with_operators(given, limits))


def fused_refusal(call: Call) -> str:
    """Return the reason if the operator `Attention` does not compute a call on CUDA, or an empty text."""
    if reason := fused.refusal(call):
        return reason
    if call.returns_weights:  # microsoft/onnxruntime#28351
        return "the operator `Attention` returns no weights on CUDA"
    return "" if _holds_keys(call) else "the operator `Attention` has no kernel on CUDA for the sizes of its heads"


def uses_fused(call: Call) -> bool:
    """Return whether the operator `Attention` computes a call on CUDA."""
    return not fused_refusal(call)


def is_one_operator(call: Call) -> bool:
    """Tell whether onnxruntime's own operator computes a call with as many queries as keys, and keeps no scores."""
    if call.band not in ((None, None), (None, 0)) or not _is_of_operators_alone(call):
        return False
    return not (call.key_size % MULTIPLE or call.value_size % MULTIPLE)


def _is_of_operators_alone(call: Call) -> bool:
    """Tell whether the operators compute a call, and nothing of it is masked or added but by the order of positions."""
    return uses_fused(call) and not (may_lack_keys(call) or call.has_bias)


def _holds_keys(call: Call) -> bool:
    """Tell whether a kernel of CUDA for float32 holds the keys of a call; otherwise it computes other products.

    It is chosen by the size of values alone: `DispatchBlockSize` in onnxruntime's fmha_launch_template.h. Seen with
    1.31.1, in both operators, from 256 queries on.
    """
    if not (call.key_size and call.value_size):  # which a request decides
        return False
    return call.key_size <= next((held for held in HELD if call.value_size <= held), math.inf)


def _with_operators(given: Given, limits: UnblockedLimits) -> Outputs:
    call = given.call
    if not is_one_operator(call):
        return _with_masks(given, limits)
    are_many = op.Not(_are_few(given, limits.one_operator))
    if call.band[1] == 0:
        # where there are not, onnxruntime's providers take different keys for the last that a query sees (29020)
        are_many = op.And(are_many, op.Squeeze(op.Equal(given.Tq, given.Tk)))
    whole = multi_head_attention_op.over_all(given, unidirectional=int(call.band[1] == 0))
    return branch(are_many, whole, _with_masks(given, limits))


def _with_masks(given: Given, limits: UnblockedLimits) -> Outputs:
    call = given.call
    if uses_fused(call) and given.opset >= FUSED_OPSET:
        return fused.hiding_body(given)
    if call.returns_weights:  # which are as large as the scores
        return portable.body(given)
    return branch(_are_few(given, limits.blocks), portable.body(given), in_blocks(given))


def in_blocks(given: Given) -> Outputs:
    """Return the outputs by blocks of queries, in plain ONNX."""
    return by_blocks(given, portable.body, given.N * given.Tk * given.call.num_heads, SCORES)


def _are_few(given: Given, most: int) -> Value:
    """Return whether a call has so few scores, or features of additive scores, a scalar."""
    call = given.call
    of_pair = call.num_heads * (units(call) if call.name == ADDITIVE else 1)
    return op.Squeeze(given.N * given.Tq * given.Tk * of_pair <= [most])
