"""The form of `adaptive` for devices such as GPUs: all examples at once, and no loop over them.

Nothing that is read from a tensor decides what runs next, but for a guard of additive scores once a call: each such
decision would wait for the device. Sizes do: a call of few pairs takes all of them at once, in plain ONNX, since each
operator of another form takes longer to start than the device computes. A large one is a single operator where it is a
softmax of dot products whose masks are of keys; see `wide_keys.py`. Others go over blocks of queries, plain ONNX in
each, additive ones as `additive_blocks.py` says.
"""

from __future__ import annotations

from keras_attn._pooling.composite import ADDITIVE

from .._thresholds import AT_ONCE
from .._tracing.attention_calls import Call
from . import additive_blocks, plain, wide_keys
from .additive_terms import units
from .given import Given
from .operators import Outputs, branch, op
from .query_blocks import by_blocks

LOWEST_OPSET = 18
SCORES = 2**24  # numbers in the scores of a block, of all examples and heads: 64 MB


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return plain.fits(call)


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    call = given.call
    numbers = given.N * given.Tq * given.Tk * _numbers_of_pair(call)
    return branch(op.Squeeze(numbers <= [AT_ONCE[_kind(call)]]), plain.body(given), large(given))


def large(given: Given) -> Outputs:
    """Return the outputs in the form for many pairs."""
    if given.call.name == ADDITIVE:
        return additive_blocks.body(given)
    if not wide_keys.fits(given.call):
        return _in_blocks(given)
    if given.call.band == (None, None):
        return wide_keys.body(given)
    # where there are not, onnxruntime's providers take different keys for the last that a query sees (29020)
    as_many = op.Squeeze(op.Equal(given.Tq, given.Tk))
    return branch(as_many, wide_keys.body(given), _in_blocks(given))


def _kind(call: Call) -> str:
    if call.name == ADDITIVE:
        return "additive"
    return "one operator" if wide_keys.fits(call) else "blocks"


def _numbers_of_pair(call: Call) -> int:
    return call.num_heads * (units(call) if call.name == ADDITIVE else 1)


def _in_blocks(given: Given) -> Outputs:
    return by_blocks(given, plain.body, given.N * given.Tk * given.call.num_heads, SCORES)
