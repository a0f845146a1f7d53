"""Additive scores without tanh: two matrix products and one division for each group of four units.

With `y_u = exp(q_u) exp(k_u)`, `tanh(q_u + k_u) = (y_u - 1 / y_u) / (y_u + 1 / y_u)`. The fractions of a group of units
are brought to a common denominator; for two units u and v:

    w_u (y_u - 1 / y_u) / (y_u + 1 / y_u) + w_v (y_v - 1 / y_v) / (y_v + 1 / y_v) = N / D
    N = (w_u + w_v) y_u y_v + (w_u - w_v) y_u / y_v + (w_v - w_u) y_v / y_u - (w_u + w_v) / (y_u y_v)
    D = y_u y_v + y_u / y_v + y_v / y_u + 1 / (y_u y_v)

N and D have one term for each subset S of the n units of a group. Let s_u = 1 for u in S, else -1. The term of D is
exp(sum s_u q_u) exp(sum s_u k_u), a factor of the query times a factor of the key. The term of N has the further factor
sum s_u w_u. So for all pairs of query and key, N and D are two matrix products over 2^n subsets, and one division for
each group replaces n tanh.

All terms of D are positive. A term of N is at most sum |w_u| times the term of D for the same subset. So rounding
changes a score by about 1e-7 of sum |w_u|. If four q_u are near 10 and four k_u near -10, it is up to 2e-6: float32
rounds sum s_u q_u = 40 by 2e-6, and this is the relative error of its exp. These bounds hold only without overflow. If
a guard finds that terms may overflow or that the sum of all |w_u| is large, scores are computed with tanh.
"""

from itertools import product

import numpy as np

from .._onnx.lazy_values import Value, op, reshape
from .._tracing.attention_calls import TracedCall
from .body_inputs import BodyInputs
from .heads import pack_heads, pad_last_axis, unpack_heads

# Units with one denominator. Smaller groups need more divisions; terms of larger groups overflow at smaller |q| + |k|
UNIT_GROUP_SIZE = 4
# (units of a group, subsets), float32: 1 if the unit is in the subset, else -1
SUBSET_SIGNS = np.array(list(product((-1, 1), repeat=UNIT_GROUP_SIZE)), np.float32).T
# Largest |q| + |k|. A term then lies between exp(-80) = 2e-35 and exp(80) = 5e34, in the range of float32
MAX_ABS_SUM = 80 / UNIT_GROUP_SIZE
# Largest sum of all |w|. Rounding then changes a score by about 1e-5, and by at most 2e-4
MAX_ABS_WEIGHT_SUM = 100.0


def count_units(call: TracedCall) -> int:
    """Return U, the number of units of a head."""
    num_units = call.shapes["w_v"][0]
    assert num_units is not None  # the static shape of a kernel
    return num_units


def count_unit_groups(call: TracedCall) -> int:
    """Return the number of unit groups of a head, rounded up. Zeros complete the last group."""
    return -(-count_units(call) // UNIT_GROUP_SIZE)


def count_padded_units(call: TracedCall) -> int:
    """Return the number of units of a head including the zeros that complete the last group."""
    return count_unit_groups(call) * UNIT_GROUP_SIZE


def pad_units(call: TracedCall, projection: Value, heads: int) -> Value:
    """Pad projected queries or keys (B, T, heads U) with zeros to full groups: (B, T, heads * padded units)."""
    num_zeros = count_padded_units(call) - count_units(call)
    if not num_zeros:
        return projection
    padded = pad_last_axis(unpack_heads(projection, heads, count_units(call)), 4, count=num_zeros)
    return pack_heads(padded, heads * count_padded_units(call))


def pad_unit_weights(inputs: BodyInputs) -> Value:
    """Pad the weights (U, 1) with zeros to full groups: (padded units, 1)."""
    num_zeros = count_padded_units(inputs.call) - count_units(inputs.call)
    return op.Pad(inputs.w_v, np.array([0, 0, num_zeros, 0])) if num_zeros else inputs.w_v


def compute_terms(group_projection: Value) -> Value:
    """Return exp(sum s_u q_u) of all subsets, (..., subsets), for projected queries or keys (..., UNIT_GROUP_SIZE)."""
    return op.Exp(op.MatMul(group_projection, SUBSET_SIGNS))


def compute_factors(padded_weights: Value) -> Value:
    """Return the factors sum s_u w_u of the numerators, (groups, subsets), for weights (padded units, 1)."""
    return op.MatMul(reshape(padded_weights, -1, UNIT_GROUP_SIZE), SUBSET_SIGNS)


def sum_unit_groups(quotients: Value, groups: int, *leading: int) -> Value:
    """Sum quotients (*leading, groups, rows, keys) over the groups. The result is (*leading, 1, rows * keys)."""
    # Not `ReduceSum`: for few groups, onnxruntime 1.32 is ten times slower with two cores than with one
    return op.MatMul(np.ones((1, groups), np.float32), reshape(quotients, *leading, groups, -1))


def is_accurate_without_tanh(inputs: BodyInputs, queries: Value, keys: Value) -> Value:
    """Return the guard, a boolean scalar, for projected queries (..., H U) and keys (..., Hkv U)."""
    max_abs_query, max_abs_key = (_max_abs_ignoring_nan(projection) for projection in (queries, keys))
    weight_sum = op.ReduceSum(op.Abs(inputs.w_v), keepdims=0)
    return (max_abs_query + max_abs_key <= MAX_ABS_SUM) & (weight_sum <= MAX_ABS_WEIGHT_SUM)


def _max_abs_ignoring_nan(tensor: Value) -> Value:
    """Return the largest absolute element of a tensor as a scalar. Ignore NaN. Return 0 if there are no elements."""
    absolute = op.Abs(tensor)
    # `ReduceMax` of onnxruntime 1.32 forgets elements before a NaN
    without_nan = op.Where(absolute > 0.0, absolute, 0.0)
    # A zero is appended since CUDA has no maximum of an empty tensor
    return op.ReduceMax(op.Concat(reshape(without_nan, -1), np.zeros(1, np.float32), axis=0), keepdims=0)
