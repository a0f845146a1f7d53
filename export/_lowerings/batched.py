"""The form of `adaptive` for devices such as GPUs: all examples at once, and no loop over them.

Nothing that is read from a tensor decides what runs next, but for a guard of additive scores once a call: each such
decision would wait for the device. Sizes do. Calls of many pairs without masks of keys are one operator of
onnxruntime's own, and other dot products the operator `Attention`, where the opset has it. What is left takes all pairs
at once, in plain ONNX, while they are few: each operator takes longer to start than a device computes. Many of them go
over blocks of queries, additive ones as `additive_blocks.py` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from keras_attn._pooling.composite import ADDITIVE

from .._options import FUSED_OPSET
from .._thresholds import AT_ONCE
from .._tracing.attention_calls import Call
from . import additive_blocks, flash, fused, plain
from .additive_terms import units
from .given import Given
from .masks import may_lack_keys
from .operators import Outputs, Value, branch, op
from .query_blocks import by_blocks

LOWEST_OPSET = 18
SCORES = 2**24  # numbers in the scores of a block, of all examples and heads: 64 MB
NOTHING = dict.fromkeys(AT_ONCE, -1)
MULTIPLE = 8  # of which sizes are where the kernels of onnxruntime's own operator keep no scores
HELD = (64, 128)  # sizes up to which there is a kernel of its own, for keys of the same sizes


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return plain.fits(call)


def body(given: Given, at_once: Mapping[str, int] = AT_ONCE) -> Outputs:
    """Return the outputs of a call that fits.

    Args:
        given: What the call is given.
        at_once: Up to how many numbers all pairs are taken at once; `NOTHING` for the forms for large sizes alone.
    """
    call = given.call
    if call.name == ADDITIVE:
        return branch(_are_few(given, at_once["additive"]), plain.body(given), additive_blocks.body(given))
    if not is_one_operator(call):
        return _with_masks(given, at_once)
    are_many = op.Not(_are_few(given, at_once["one operator"]))
    if call.band[1] == 0:
        # where there are not, onnxruntime's providers take different keys for the last that a query sees (29020)
        are_many = op.And(are_many, op.Squeeze(op.Equal(given.Tq, given.Tk)))
    whole = flash.over_all(given, unidirectional=int(call.band[1] == 0))
    return branch(are_many, whole, _with_masks(given, at_once))


def uses_fused(call: Call) -> bool:
    """Tell whether the operator `Attention` computes a call on CUDA, which gives no weights there (28351)."""
    return fused.fits(call) and not call.returns_weights and _holds_keys(call)


def is_one_operator(call: Call) -> bool:
    """Tell whether onnxruntime's own operator computes a call with as many queries as keys, and keeps no scores."""
    has_masks = may_lack_keys(call) or call.has_bias or call.band not in ((None, None), (None, 0))
    if has_masks or not uses_fused(call):
        return False
    return not (call.key_size % MULTIPLE or call.value_size % MULTIPLE)


def _holds_keys(call: Call) -> bool:
    """Tell whether a kernel of CUDA for float32 holds the keys of a call; otherwise it computes other products.

    It is chosen by the size of values alone: `DispatchBlockSize` in onnxruntime's fmha_launch_template.h. Seen with
    1.31.1, in both operators, from 256 queries on.
    """
    if not (call.key_size and call.value_size):  # which a request decides
        return False
    return call.key_size <= next((held for held in HELD if call.value_size <= held), math.inf)


def _with_masks(given: Given, at_once: Mapping[str, int]) -> Outputs:
    call = given.call
    if uses_fused(call) and given.opset >= FUSED_OPSET:
        return fused.hiding_body(given)
    if call.returns_weights:  # which are as large as the scores
        return plain.body(given)
    return branch(_are_few(given, at_once["blocks"]), plain.body(given), in_blocks(given))


def in_blocks(given: Given) -> Outputs:
    """Return the outputs by blocks of queries, in plain ONNX."""
    return by_blocks(given, plain.body, given.N * given.Tk * given.call.num_heads, SCORES)


def _are_few(given: Given, most: int) -> Value:
    """Return whether a call has so few scores, or features of additive scores, a scalar."""
    call = given.call
    of_pair = call.num_heads * (units(call) if call.name == ADDITIVE else 1)
    return op.Squeeze(given.N * given.Tq * given.Tk * of_pair <= [most])
