"""Large-size form of `adaptive`: one example at a time, over its unmasked keys only.

A softmax of scaled dot products whose masks are of keys is onnxruntime's own operator; see
`multi_head_attention_op.py`. Where queries differ in what they see, there is a bias, or the weights are returned, they
go over blocks of queries; see `dot_product_blocks.py`, and `additive_per_example.py` and `distances.py` for other
scores.
"""

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE, DOT_PRODUCT

from ..._onnx.lazy_values import Outputs
from ..._tracing.attention_calls import Call
from ..body_inputs import Given
from ..forms import additive_per_example, distances, dot_product_blocks, multi_head_attention_op, sliding_window


def refusal(call: Call) -> str:
    """Return the reason if there is no body for a call, or an empty text.

    onnxruntime's operator takes a scale of 0 for its default, 1 / sqrt(size of a key).
    """
    return "its scale is 0" if call.name == DOT_PRODUCT and np.float32(call.options["scale"]) == 0 else ""


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    call = given.call
    if call.name == ADDITIVE:
        return additive_per_example.body(given)
    if call.name == DISTANCE:
        return distances.body(given)
    if sliding_window.fits(call):
        return sliding_window.body(given)
    in_blocks = call.differs_by_query or call.has_bias or call.returns_weights or call.normalizer != SOFTMAX
    return dot_product_blocks.body(given) if in_blocks else multi_head_attention_op.body(given)
