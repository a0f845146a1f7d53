"""Additive scores `sum_u w_u tanh(q_u + k_u)` without tanh: two matrix products and one division for three units.

With `x_u = exp(2 q_u) exp(2 k_u)`, `tanh(q_u + k_u) = (x_u - 1) / (x_u + 1)`. A group of units is brought over one
denominator; for two units u and v:

    w_u (x_u - 1) / (x_u + 1) + w_v (x_v - 1) / (x_v + 1) = N / D
    N = -(w_u + w_v) + (w_u - w_v) x_u + (w_v - w_u) x_v + (w_u + w_v) x_u x_v
    D = 1 + x_u + x_v + x_u x_v

N and D are sums over the subsets S of the group. The term of S is the product of the x_u in S: exp of twice the sum of
the q_u in S, a number of the query, times the same of the key; in N it has the factor `sum of w_u in S - sum of w_u not
in S`. So for all pairs of query and key they are two matrix products, and the features are passed over once for each
group, to divide.

All terms of D are positive, and none of N is larger than the sum of the group's |w_u| times the same term of D: so
rounding moves a score by about 1e-7 of the sum of all |w_u|. This holds while nothing overflows. A guard checks that,
and that the weights are not so large that the rounding shows; otherwise tanh is taken.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from .._tracing.attention_calls import Call
from .given import Given
from .heads import heads_apart, pad, side_by_side
from .operators import Value, op, reshape

GROUP = 3  # units; with fewer there is more to divide, with more the products take longer and overflow sooner
SUBSETS = [subset for size in range(GROUP + 1) for subset in combinations(range(GROUP), size)]
REACH = 80 / (2 * GROUP)  # largest q + k: a term is then exp(80) at most, 5e34
# Largest q and k: a number that underflows then meets exp(66) at most, and their term is below 1e-9.
FARTHEST = 66 / (2 * GROUP)
HEAVIEST = 100.0  # largest sum of all |w|: rounding then moves a score by 1e-5 at most, by 1e-6 as a rule


def units(call: Call) -> int:
    """Return the units of a head."""
    size = call.shapes["w_v"][0]
    assert size is not None  # that of a kernel
    return size


def full_units(call: Call) -> int:
    """Return the units of a head, in full groups."""
    return units(call) + _missing(call)


def _missing(call: Call) -> int:
    return -units(call) % GROUP


def filled(call: Call, projected: Value, heads: int) -> Value:
    """Return queries or keys (N, T, heads U) with zeros for the units that each head lacks for full groups."""
    if not _missing(call):
        return projected
    of_heads = pad(heads_apart(projected, heads, units(call)), 4, last=_missing(call))
    return side_by_side(of_heads, heads * full_units(call))


def filled_weights(given: Given) -> Value:
    """Return the weights with zeros for these units."""
    missing = _missing(given.call)
    return op.Pad(given.w_v, np.array([0, 0, missing, 0])) if missing else given.w_v


def terms(call: Call, projected: Value, heads: int) -> Value:
    """Return the terms (..., groups, subsets) of projected queries or keys (..., heads U).

    Units are bounded from below, as minus infinity times 0 is NaN, where its tanh is -1.
    """
    places = op.Shape(projected, end=-1)
    groups = reshape(op.Max(projected, -1e30), places, heads * full_units(call) // GROUP, GROUP)
    return op.Exp(op.MatMul(groups, _by_subset(2.0, 0.0)))


def factors(full_weights: Value) -> Value:
    """Return the factors (groups, subsets) of the terms in the numerators of a head."""
    return op.MatMul(reshape(full_weights, -1, GROUP), _by_subset(1.0, -1.0))


def sums_of_groups(quotients: Value, groups: int, *before: int) -> Value:
    """Return the sums over groups (..., 1, numbers) of quotients (..., groups, rows, keys), with axes of sizes before.

    A product with ones: onnxruntime 1.32 takes ten times as long for `ReduceSum` of few groups on two cores as on one.
    """
    return op.MatMul(np.ones((1, groups), np.float32), reshape(quotients, *before, groups, -1))


def _by_subset(those_in: float, others: float) -> np.ndarray:
    """Return a matrix (units of a group, subsets): one number where the unit is in the subset, another elsewhere."""
    rows = [[those_in if unit in subset else others for subset in SUBSETS] for unit in range(GROUP)]
    return np.array(rows, np.float32)


def in_range(given: Given, queries: Value, keys: Value) -> Value:
    """Return whether nothing overflows for projected queries and keys, and their weights."""
    highest_query, highest_key = (op.ReduceMax(each, keepdims=0) for each in (queries, keys))
    weight_of_all = op.ReduceSum(op.Abs(given.w_v), keepdims=0)
    reach, farthest = highest_query + highest_key, op.Max(highest_query, highest_key)
    return (reach <= REACH) & (farthest <= FARTHEST) & (weight_of_all <= HEAVIEST)
