"""The form of `adaptive` for large sizes: one example at a time over the keys that take part, in blocks for the cache.

A softmax of scaled dot products whose masks are of keys is onnxruntime's own operator; see `flash.py`. Where queries
differ in what they see, there is a bias, or the weights are returned, they go over blocks of queries; see
`products.py`, and `additive.py` and `distances.py` for other scores.
"""

from __future__ import annotations

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import ADDITIVE, DISTANCE, DOT_PRODUCT

from .._tracing.attention_calls import Call
from . import additive, distances, flash, products, windows


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call; a scale of 0 would stand for the operator's default."""
    return call.name in (ADDITIVE, DISTANCE) or (call.name == DOT_PRODUCT and np.float32(call.options["scale"]) != 0)


def body(call: Call, name: str = "ragged") -> str:
    """Return the body of the ONNX function of a call that fits; `name` begins the names of its branches."""
    if call.name == ADDITIVE:
        return additive.body(call)
    if call.name == DISTANCE:
        return distances.body(call)
    if windows.fits(call):
        return windows.body(call, f"{name}_windows")
    in_blocks = call.differs_by_query or call.has_bias or call.returns_weights or call.normalizer != SOFTMAX
    return products.body(call) if in_blocks else flash.body(call, name)
