"""The form of `adaptive` for devices such as GPUs: all examples at once, and no loop over them.

Nothing that is read from a tensor decides what runs next, but for a guard of additive scores once a call: each such
decision would wait for the device. A softmax of dot products whose masks are of keys is one operator; see
`wide_keys.py`. Other calls go over blocks of queries, plain ONNX in each, additive ones as `additive_blocks.py` says.
"""

from __future__ import annotations

from keras_attn._pooling.composite import ADDITIVE

from .._tracing.attention_calls import Call
from . import additive_blocks, plain, wide_keys
from .query_blocks import by_blocks
from .text import chosen

LOWEST_OPSET = 18
SCORES = 2**24  # numbers in the scores of a block, of all examples and heads: 64 MB


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return plain.fits(call)


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call that fits."""
    if call.name == ADDITIVE:
        return additive_blocks.body(call)
    if not wide_keys.fits(call):
        return _in_blocks(call)
    if call.band == (None, None):
        return wide_keys.body(call)
    # where there are not, onnxruntime's providers take different keys for the last that a query sees (29020)
    return f"""
        as_many_vector = Equal (Tq, Tk)
        as_many = Squeeze (as_many_vector)
        {chosen(call, "as_many", wide_keys.body(call), _in_blocks(call), "batched")}
    """


def _in_blocks(call: Call) -> str:
    return f"""
        number_of_heads = Constant <value_ints = [{call.num_heads}]> ()
        scores_of_example = Mul (number_of_heads, Tk)
        scores_of_row = Mul (N, scores_of_example)
        {by_blocks(call, plain.body(call), "scores_of_row", SCORES)}
    """
