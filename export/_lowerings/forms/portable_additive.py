"""Lowering `portable` for additive scores on CPUs: query blocks if there are many scores.

All pairs at once have a feature for each pair and unit: half a gigabyte for two rows of 512 positions and 256 units.
"""

from keras_attn._pooling.scoring import ADDITIVE

from ..._onnx.lazy_values import Outputs, branch, op
from ..._tracing.attention_calls import Call
from ..additive_without_tanh import units
from ..body_inputs import Given
from ..forms import additive_batched, portable

LOWEST_OPSET = portable.LOWEST_OPSET
FEW_QUERIES = 48  # so many have to share what is made ready of each key: 9 queries took three times as long as at once
AT_ONCE = 2**23  # features of the queries beyond these, of all examples and heads: 32 MB


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call: not for one with so few queries that the model fixes."""
    queries = call.shapes["queries"][-2]
    return call.name == ADDITIVE and (queries is None or queries > FEW_QUERIES)


def body(given: Given) -> Outputs:
    """Return the outputs of a call that fits."""
    pairs = given.N * (given.Tq - FEW_QUERIES) * given.Tk
    are_few = op.Squeeze(pairs * (given.call.num_heads * units(given.call)) <= [AT_ONCE])
    return branch(are_few, portable.body(given), additive_batched.body(given))
