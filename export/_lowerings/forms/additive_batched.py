"""Additive attention of the whole batch, in query blocks.

Whether nothing overflows is asked once a call, of all that any query or key of it may read.
"""

from ..._onnx.lazy_values import Outputs, Value, branch, op, reshape
from ..._thresholds import UnblockedLimits
from ..additive_without_tanh import (
    GROUP,
    factors,
    filled,
    filled_weights,
    groups,
    in_range,
    sums_of_groups,
    terms,
    units,
)
from ..batch_blocks import by_blocks
from ..body_inputs import Given
from ..heads import repeat_joined
from ..masks import Masks
from .portable import from_scores, scores

NUMBERS = UnblockedLimits().additive_quotients  # in a tensor of a block, of which there are three at a time: 256 MB
ON_CPU = 2**21  # the same: 8 MB


def body(given: Given, at_once: int = -1) -> Outputs:
    """Return the outputs of an additive call.

    Args:
        given: What the call is given.
        at_once: Up to how many quotients there is one block, without a loop; below 0 there is always a loop.
    """
    masks = Masks(given)
    keys, values = masks.hidden(given.keys), masks.hidden(given.values)
    guard = in_range(given, masks.hidden_queries(), keys)
    return branch(guard, _in_groups(given, keys, values, at_once), _by_tanh(given, keys, values))


def _by_tanh(given: Given, keys: Value, values: Value) -> Outputs:
    def of_block(block: Given) -> Outputs:
        return from_scores(Masks(block), scores(block, keys), values)

    return by_blocks(given, of_block, _pairs_of_query(given) * units(given.call), _largest(given))


def _in_groups(given: Given, keys: Value, values: Value, at_once: int) -> Outputs:
    call, heads = given.call, given.call.num_heads

    def terms_of(joined: Value) -> Value:
        of_heads = reshape(filled(call, joined, heads), 0, 0, heads, groups(call), GROUP)
        return terms(op.Transpose(of_heads, perm=[3, 0, 2, 1, 4]))

    denominators = op.Transpose(terms_of(repeat_joined(call, keys, units(call))), perm=[0, 1, 2, 4, 3])
    numerators = denominators * op.Unsqueeze(factors(filled_weights(given)), [1, 2, 4])

    def of_block(block: Given) -> Outputs:
        rows = terms_of(block.queries)
        quotients = op.MatMul(rows, numerators) / op.MatMul(rows, denominators)
        sums = sums_of_groups(quotients, groups(call))
        of_all_heads = reshape(sums, op.Shape(quotients, start=1), allowzero=1)
        of_pairs = op.Squeeze(of_all_heads, [1]) if call.heads is None else of_all_heads
        return from_scores(Masks(block), of_pairs, values)

    numbers_of_row = _pairs_of_query(given) * groups(call)
    in_blocks = by_blocks(given, of_block, numbers_of_row, _largest(given))
    if at_once < 0:
        return in_blocks
    return branch(op.Squeeze(numbers_of_row * given.Tq <= [at_once]), of_block(given), in_blocks)


def _pairs_of_query(given: Given) -> Value:
    return given.N * given.Tk * given.call.num_heads


def _largest(given: Given) -> int:
    return NUMBERS if given.for_device else ON_CPU
