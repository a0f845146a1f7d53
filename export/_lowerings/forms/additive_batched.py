"""Additive attention of the whole batch, in query blocks.

All features (B, H, Tq, Tk, U) at once are the largest tensor of additive attention. A block of n queries has
n B H Tk U features with tanh, or n B H Tk (U / 4) quotients without (`additive_without_tanh.py`); n is the largest
number of queries that fits the bound below. Terms of the keys do not depend on the block and are computed once. The
overflow guard is checked once for each call, over all queries and keys that an unmasked pair may read.
"""

from ..._onnx.lazy_values import Outputs, Value, if_else, op, reshape
from ..._thresholds import UnblockedLimits
from .. import additive_without_tanh as without_tanh
from ..batch_blocks import attend_in_blocks
from ..body_inputs import BodyInputs
from ..heads import repeat_packed_kv_heads
from ..masks import Masks
from .portable import attend_from_scores, compute_scores

# Elements of a tensor of a block, of which up to three exist at a time: 256 MB each on a GPU, 8 MB on a CPU
MAX_BLOCK_ELEMENTS_ON_GPU = UnblockedLimits().additive_quotients
MAX_BLOCK_ELEMENTS_ON_CPU = 2**21


def build_body(inputs: BodyInputs, max_unblocked_quotients: int = -1) -> Outputs:
    """Return the output (B, Tq, H Dv) of an additive call and, if returned, its weights.

    Up to `max_unblocked_quotients`, a single block runs without a loop; if negative, there is always a loop.
    """
    masks = Masks(inputs)
    keys, values = masks.zero_masked(inputs.keys), masks.zero_masked(inputs.values)
    guard = without_tanh.is_accurate_without_tanh(inputs, masks.zero_fully_masked_queries(), keys)
    outputs = _attend_without_tanh(inputs, keys, values, max_unblocked_quotients)
    return if_else(guard, outputs, _attend_with_tanh(inputs, keys, values))


def _attend_with_tanh(inputs: BodyInputs, keys: Value, values: Value) -> Outputs:
    """Return the outputs for keys (B, Tk, Hkv U) and values (B, Tk, Hkv Dv), zero if masked for all queries."""

    def attend_block(block: BodyInputs) -> Outputs:
        return attend_from_scores(Masks(block), compute_scores(block, keys), values)

    features_per_query = _count_pairs_per_query(inputs) * without_tanh.count_units(inputs.call)
    return attend_in_blocks(inputs, attend_block, features_per_query, _get_max_block_elements(inputs))


def _attend_without_tanh(inputs: BodyInputs, keys: Value, values: Value, max_unblocked_quotients: int) -> Outputs:
    """Return the outputs for keys (B, Tk, Hkv U) and values (B, Tk, Hkv Dv), zero if masked for all queries."""
    call, heads, groups = inputs.call, inputs.call.num_heads, without_tanh.count_unit_groups(inputs.call)

    def compute_terms(packed: Value) -> Value:
        """Return the terms (groups, B, H, T, subsets) of projected queries or keys (B, T, H U)."""
        padded = without_tanh.pad_units(call, packed, heads)
        units = reshape(padded, 0, 0, heads, groups, without_tanh.UNIT_GROUP_SIZE)
        return without_tanh.compute_terms(op.Transpose(units, perm=[3, 0, 2, 1, 4]))

    # Denominators and numerators have the shape (groups, B, H, subsets, Tk), as the products need it
    repeated_keys = repeat_packed_kv_heads(call, keys, without_tanh.count_units(call))
    denominators = op.Transpose(compute_terms(repeated_keys), perm=[0, 1, 2, 4, 3])
    factors = without_tanh.compute_factors(without_tanh.pad_unit_weights(inputs))
    numerators = denominators * op.Unsqueeze(factors, [1, 2, 4])

    def attend_block(block: BodyInputs) -> Outputs:
        query_terms = compute_terms(block.queries)
        quotients = op.MatMul(query_terms, numerators) / op.MatMul(query_terms, denominators)
        sums = without_tanh.sum_unit_groups(quotients, groups)
        scores = reshape(sums, op.Shape(quotients, start=1), allowzero=1)
        scores = op.Squeeze(scores, [1]) if call.heads is None else scores
        return attend_from_scores(Masks(block), scores, values)

    quotients_per_query = _count_pairs_per_query(inputs) * groups
    blocked = attend_in_blocks(inputs, attend_block, quotients_per_query, _get_max_block_elements(inputs))
    if max_unblocked_quotients < 0:
        return blocked
    is_single_block = op.Squeeze(quotients_per_query * inputs.Tq <= [max_unblocked_quotients])
    return if_else(is_single_block, attend_block(inputs), blocked)


def _count_pairs_per_query(inputs: BodyInputs) -> Value:
    """Return B H Tk, a size."""
    return inputs.B * inputs.Tk * inputs.call.num_heads


def _get_max_block_elements(inputs: BodyInputs) -> int:
    """Return the bound of a block on the device of the body."""
    return MAX_BLOCK_ELEMENTS_ON_GPU if inputs.for_device else MAX_BLOCK_ELEMENTS_ON_CPU
