"""Compute attention one example at a time, over its unmasked keys only: the large form of the lowering `adaptive`.

The time is proportional to Tq times the number of unmasked keys in all examples, not to B Tq Tk. The memory is that
of one example. Additive scores and distances run in query blocks (`additive_per_example.py`, `distances.py`). Dot
products in a window with two limits have their own form (`sliding_window.py`). Other dot products run in query blocks
(`dot_product_blocks.py`) if the mask depends on the query, or if the call has a bias, returns weights, or has another
normalizer than softmax. All other calls use `MultiHeadAttention` of onnxruntime (`multi_head_attention_op.py`).
"""

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE, DOT_PRODUCT

from ..._onnx.lazy_values import Outputs
from ..._tracing.attention_calls import TracedCall
from ..body_inputs import BodyInputs
from ..forms import additive_per_example, distances, dot_product_blocks, multi_head_attention_op, sliding_window


def find_unsupported_reason(call: TracedCall) -> str:
    """Return the reason why the form does not support a call, or an empty text if it does."""
    # onnxruntime's operator replaces a scale of 0 by its default, 1 / sqrt(D)
    return "its scale is 0" if call.score == DOT_PRODUCT and np.float32(call.options["scale"]) == 0 else ""


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a supported call and, if the call returns them, its weights."""
    call = inputs.call
    if call.score == ADDITIVE:
        return additive_per_example.build_body(inputs)
    if call.score == DISTANCE:
        return distances.build_body(inputs)
    if sliding_window.supports(call):
        return sliding_window.build_body(inputs)
    needs_blocks = call.mask_differs_by_query or call.has_bias or call.returns_weights or call.normalizer != SOFTMAX
    return dot_product_blocks.build_body(inputs) if needs_blocks else multi_head_attention_op.build_body(inputs)
