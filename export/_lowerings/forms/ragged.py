"""Large-size form of `adaptive`: one example at a time, over its unmasked keys only.

The work is in proportion to the sum over examples of Tq times the unmasked keys, not to B Tq Tk, and memory to one
example. Softmax of scaled dot products under key masks is onnxruntime's operator (`multi_head_attention_op.py`), a
window to both sides has its own form (`sliding_window.py`). If the mask depends on the query, or with a bias, returned
weights or another normalizer, query blocks compute the scores (`dot_product_blocks.py`); other scores always have query
blocks (`additive_per_example.py`, `distances.py`).
"""

import numpy as np

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE, DOT_PRODUCT

from ..._onnx.lazy_values import Outputs
from ..._tracing.attention_calls import TracedCall
from ..body_inputs import BodyInputs
from ..forms import additive_per_example, distances, dot_product_blocks, multi_head_attention_op, sliding_window


def find_unsupported_reason(call: TracedCall) -> str:
    """Return the reason if the form does not support a call, or an empty text."""
    # onnxruntime's operator replaces a scale of 0 by its default, 1 / sqrt(D)
    return "its scale is 0" if call.score == DOT_PRODUCT and np.float32(call.options["scale"]) == 0 else ""


def body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a supported call and, if returned, its weights."""
    call = inputs.call
    if call.score == ADDITIVE:
        return additive_per_example.body(inputs)
    if call.score == DISTANCE:
        return distances.body(inputs)
    if sliding_window.fits(call):
        return sliding_window.body(inputs)
    needs_blocks = call.mask_differs_by_query or call.has_bias or call.returns_weights or call.normalizer != SOFTMAX
    return dot_product_blocks.body(inputs) if needs_blocks else multi_head_attention_op.body(inputs)
