"""The `portable` lowering of additive scores: all pairs at once for small sizes, blocks of queries for large ones.

Both are standard operators of opset 18, the blocks with `Scan` and `If`. Other scores are written as `plain.py` says,
at all sizes, and so are additive ones for devices, which would be waited for in the loops, and in files that are
converted to a coarser precision, which the sums of the blocks do not bear.
"""

from __future__ import annotations

from keras_attn._pooling.composite import ADDITIVE

from .._tracing.attention_calls import Call
from . import additive, by_size, plain
from .given import Given
from .operators import Outputs

LOWEST_OPSET = 18


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return call.name == ADDITIVE


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    return by_size.body(given, plain.body, additive.body)


def form(call: Call) -> str:
    """Return in words which form is taken when."""
    return by_size.form(call, "plain operators")
