"""Additive scores without tanh: two matrix products and one division for four units.

With `y_u = exp(q_u) exp(k_u)`, `tanh(q_u + k_u) = (y_u - 1 / y_u) / (y_u + 1 / y_u)`. A group of units is brought over
one denominator; for two units u and v:

    w_u (y_u - 1 / y_u) / (y_u + 1 / y_u) + w_v (y_v - 1 / y_v) / (y_v + 1 / y_v) = N / D
    N = (w_u + w_v) y_u y_v + (w_u - w_v) y_u / y_v + (w_v - w_u) y_v / y_u - (w_u + w_v) / (y_u y_v)
    D = y_u y_v + y_u / y_v + y_v / y_u + 1 / (y_u y_v)

N and D are sums over the subsets S of the group. The term of S is the product of the y_u in S over that of the others:
exp of the sum of the q_u in S less that of the others, a number of the query, times the same of the key; in N it has
the factor `sum of w_u in S - sum of w_u not in S`. So for all pairs of query and key they are two matrix products, and
the features are passed over once for each group, to divide.

All terms of D are positive, and none of N is larger than the sum of the group's |w_u| times the same term of D: so
rounding moves a score by about 1e-7 of the sum of all |w_u|, and by up to 2e-6 of it where four q_u near 10 meet such
k_u of the other sign: exp passes on the rounding of 40. This holds while nothing overflows. A guard checks that, and
that the weights are not so large that the rounding shows; otherwise tanh is taken.
"""

from itertools import product

import numpy as np

from .._onnx.lazy_values import Value, op, reshape
from .._tracing.attention_calls import Call
from .body_inputs import Given
from .heads import heads_apart, pad, side_by_side

GROUP = 4  # units; with fewer there is more to divide, with more the products take longer and overflow sooner
SIGNS = np.array(list(product((-1, 1), repeat=GROUP)), np.float32).T
"""(units of a group, subsets): 1 where the unit is in the subset, -1 elsewhere."""
REACH = 80 / GROUP  # largest |q| + |k|: a term is then from exp(-80), 2e-35, to exp(80), 5e34
HEAVIEST = 100.0  # largest sum of all |w|: rounding then moves a score by 1e-5 as a rule, by 2e-4 at most


def units(call: Call) -> int:
    """Return the units of a head."""
    size = call.shapes["w_v"][0]
    assert size is not None  # that of a kernel
    return size


def groups(call: Call) -> int:
    """Return the groups of units of a head."""
    return -(-units(call) // GROUP)


def full_units(call: Call) -> int:
    """Return the units of a head, in full groups."""
    return groups(call) * GROUP


def filled(call: Call, projected: Value, heads: int) -> Value:
    """Return queries or keys (N, T, heads U) with zeros for the units that each head lacks for full groups."""
    missing = full_units(call) - units(call)
    if not missing:
        return projected
    of_heads = pad(heads_apart(projected, heads, units(call)), 4, last=missing)
    return side_by_side(of_heads, heads * full_units(call))


def filled_weights(given: Given) -> Value:
    """Return the weights with zeros for these units."""
    missing = full_units(given.call) - units(given.call)
    return op.Pad(given.w_v, np.array([0, 0, missing, 0])) if missing else given.w_v


def terms(units: Value) -> Value:
    """Return the terms (..., subsets) of the units (..., GROUP) of projected queries or keys."""
    return op.Exp(op.MatMul(units, SIGNS))


def factors(full_weights: Value) -> Value:
    """Return the factors (groups, subsets) of the terms in the numerators of a head."""
    return op.MatMul(reshape(full_weights, -1, GROUP), SIGNS)


def sums_of_groups(quotients: Value, groups: int, *before: int) -> Value:
    """Return the sums over groups (..., 1, numbers) of quotients (..., groups, rows, keys), with axes of sizes before.

    A product with ones: onnxruntime 1.32 takes ten times as long for `ReduceSum` of few groups on two cores as on one.
    """
    return op.MatMul(np.ones((1, groups), np.float32), reshape(quotients, *before, groups, -1))


def in_range(given: Given, queries: Value, keys: Value) -> Value:
    """Return whether nothing overflows for projected queries and keys, and their weights."""
    farthest_query, farthest_key = (_farthest(each) for each in (queries, keys))
    weight_of_all = op.ReduceSum(op.Abs(given.w_v), keepdims=0)
    return (farthest_query + farthest_key <= REACH) & (weight_of_all <= HEAVIEST)


def _farthest(tensor: Value) -> Value:
    """Return the largest absolute number that is none of NaN, 0 of none: CUDA has no largest of none.

    A number beside NaN may be lost to `ReduceMax`: onnxruntime 1.32 forgets what is before it.
    """
    distances = op.Abs(tensor)
    numbers = op.Where(distances > 0.0, distances, 0.0)
    return op.ReduceMax(op.Concat(reshape(numbers, -1), np.zeros(1, np.float32), axis=0), keepdims=0)
