"""Lowering `portable` for additive scores on CPUs: query blocks if there are many scores.

All pairs at once have a feature for each pair and unit, B H Tq Tk U of them: half a gigabyte for B = 2, 512 positions
and 256 units. Blocks bound the memory, but compute terms for each key, whose cost only many queries share. So blocks
are used if B H (Tq - MIN_SHARING_QUERIES) Tk U > MAX_UNBLOCKED_FEATURES.
"""

from keras_attn._pooling.scoring import ADDITIVE

from ..._onnx.lazy_values import Outputs, if_else, op
from ..._tracing.attention_calls import TracedCall
from ..additive_without_tanh import count_units
from ..body_inputs import BodyInputs
from ..forms import additive_batched, portable

LOWEST_OPSET = portable.LOWEST_OPSET
# Queries that must share the terms of a key: in blocks, 9 queries took three times as long as all pairs at once
MIN_SHARING_QUERIES = 48
MAX_UNBLOCKED_FEATURES = 2**23  # of the queries beyond these, over all examples and heads: 32 MB in float32


def supports(call: TracedCall) -> bool:
    """Return True for additive calls, unless the model fixes a number of queries that is too small for blocks."""
    queries = call.shapes["queries"][-2]
    return call.score == ADDITIVE and (queries is None or queries > MIN_SHARING_QUERIES)


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a supported call and, if the call returns them, its weights."""
    pairs = inputs.B * (inputs.Tq - MIN_SHARING_QUERIES) * inputs.Tk
    features = pairs * (inputs.call.num_heads * count_units(inputs.call))
    fits_unblocked = op.Squeeze(features <= [MAX_UNBLOCKED_FEATURES])
    return if_else(fits_unblocked, portable.build_body(inputs), additive_batched.build_body(inputs))
