"""Additive scores `sum_u w_u tanh(q_u + k_u)` without tanh: two matrix products and one division for three units.

With `x_u = exp(2 q_u) exp(2 k_u)`, `tanh(q_u + k_u) = (x_u - 1) / (x_u + 1)`. A group of units is brought over one
denominator; for two units u and v:

    w_u (x_u - 1) / (x_u + 1) + w_v (x_v - 1) / (x_v + 1) = N / D
    N = -(w_u + w_v) + (w_u - w_v) x_u + (w_v - w_u) x_v + (w_u + w_v) x_u x_v
    D = 1 + x_u + x_v + x_u x_v

N and D are sums over the subsets S of the group. The term of S is the product of the x_u in S, a number of the query
times a number of the key; in N it has the factor `sum of w_u in S - sum of w_u not in S`. So for all pairs of query and
key they are two matrix products, and the features are passed over once for each group, to divide.

All terms of D are positive, and none of N is larger than the sum of the group's |w_u| times the same term of D: so
rounding moves a score by about 1e-7 of the sum of all |w_u|. This holds while nothing overflows. A guard checks that,
and that the weights are not so large that the rounding shows, for each example; otherwise tanh is taken.
"""

from __future__ import annotations

from itertools import combinations

from .._composites import Call
from ._blocks import (
    block_outputs,
    block_sizes,
    example_outputs,
    from_blocks,
    in_blocks,
    over_blocks,
    over_examples,
)
from ._text import CONTRIB

GROUP = 3  # units; with fewer there is more to divide, with more the products take longer and overflow sooner
SUBSETS = [subset for size in range(GROUP + 1) for subset in combinations(range(GROUP), size)]
FEATURES = 5 * 2**19  # elements of the (rows, Tk, U) features in a block; each product then takes 3.3 MB
REACH = 80 / (2 * GROUP)  # largest q + k: a term is then exp(80) at most, 5e34
# Largest q and k: a number that underflows then meets exp(66) at most, and their term is below 1e-9.
FARTHEST = 66 / (2 * GROUP)
HEAVIEST = 100.0  # largest sum of all |w|: rounding then moves a score by 1e-5 at most, by 1e-6 as a rule


def body(call: Call) -> str:
    """Return the body of the ONNX function of an additive call."""
    units = call.shapes["w_v"][0]
    assert units is not None  # the size of a kernel
    missing = -units % GROUP
    inputs = {
        "query_blocks": "float[?, ?, ?] query_blocks_of_example",
        "upper_queries": "float[?, ?, ?, ?] upper_blocks",
        "lower_queries": "float[?, ?, ?, ?] lower_blocks",
    }
    example = f"""
        {_READ_OF_PAIRS if call.mask_is_per_query else _READ}
        {_GUARD}
        {", ".join(f"example_{name}" for name in call.outputs)} = If <
            then_branch = in_groups () => ({", ".join(example_outputs(call, "groups"))}) {{ {_in_groups(call)} }},
            else_branch = by_tanh () => ({", ".join(example_outputs(call, "tanh"))}) {{ {_by_tanh(call)} }}
        > (in_range)
    """
    return f"""
        {_FILLED.format(missing=missing) if missing else _FULL}
        units = Constant <value_ints = [{units + missing}]> ()
        features_of_query = Mul (Tk, units)
        {block_sizes(FEATURES, "features_of_query")}
        {in_blocks(call, "full_queries")}
        {_queries_in_groups()}
        {_GUARD_OF_WEIGHTS}
        {block_outputs(call)} = {over_examples(call, inputs, example, example_outputs(call))}
        {from_blocks(call)}
    """


def _in_groups(call: Call) -> str:
    blocks = {"upper_blocks": "float[?, ?, ?] upper_terms", "lower_blocks": "float[?, ?, ?] lower_terms"}
    scores = f"""
        upper = {CONTRIB}.FusedMatMul <transA = 1> (upper_terms, powers_of_key_terms)
        lower = {CONTRIB}.FusedMatMul <transA = 1> (lower_terms, powers_of_key_terms)
        quotients = Div (upper, lower)
        scores = ReduceSum <keepdims = 0> (quotients, zero)
    """
    return _keys_in_groups() + over_blocks(call, blocks, scores, "groups")


def _by_tanh(call: Call) -> str:
    blocks = {"query_blocks_of_example": "float[?, ?] query"}
    scores = """
        query_column = Unsqueeze (query, one)
        sums = Add (query_column, key)
        features = Tanh (sums)
        scores_column = MatMul (features, full_w_v)
        scores = Squeeze (scores_column, minus_one)
    """
    return over_blocks(call, blocks, scores, "tanh")


_FULL = """
    full_queries = Identity (queries)
    full_keys = Identity (keys)
    full_w_v = Identity (w_v)
"""
# as tensors: given as `value_ints`, onnxruntime before 1.24 takes them for pads of another rank
_FILLED = """
    missing_units = Constant <value = int64[6] {{0, 0, 0, 0, 0, {missing}}}> ()
    missing_weights = Constant <value = int64[4] {{0, 0, {missing}, 0}}> ()
    full_queries = Pad (queries, missing_units)
    full_keys = Pad (keys, missing_units)
    full_w_v = Pad (w_v, missing_weights)
"""
_READ = """
    read_query = Identity (query_blocks_of_example)
    read_key = Identity (key)
"""
# what no pair reads may be anything, and must not decide the form
_READ_OF_PAIRS = """
    read_key = Where (seen_column, key, nothing)
    axis_of_keys = Constant <value_ints = [2]> ()
    any_key = ReduceMax <keepdims = 1> (mask_numbers, axis_of_keys)
    sees_a_key = Cast <to = 9> (any_key)
    read_query = Where (sees_a_key, query_blocks_of_example, nothing)
"""
_GUARD = f"""
    highest_query = ReduceMax <keepdims = 0> (read_query)
    highest_key = ReduceMax <keepdims = 0> (read_key)
    reach = Add (highest_query, highest_key)
    farthest = Max (highest_query, highest_key)
    most_reach = Constant <value_float = {REACH}> ()
    most_far = Constant <value_float = {FARTHEST}> ()
    sums_in_range = LessOrEqual (reach, most_reach)
    each_in_range = LessOrEqual (farthest, most_far)
    positions_in_range = And (sums_in_range, each_in_range)
    in_range = And (positions_in_range, weights_in_range)
"""
_GUARD_OF_WEIGHTS = f"""
    sizes_of_weights = Abs (w_v)
    weight_of_all = ReduceSum <keepdims = 0> (sizes_of_weights)
    heaviest = Constant <value_float = {HEAVIEST}> ()
    weights_in_range = LessOrEqual (weight_of_all, heaviest)
"""


def _queries_in_groups() -> str:
    """Lines that give the numbers of the queries in D and in N: (N, blocks, groups, subsets, rows)."""
    return f"""
        {_terms("powers_of_query", "query_blocks", "0, 1, 3, 2", axis=2)}
        lower_queries = Identity (powers_of_query_terms)
        {_numbered("weight")} = Split <axis = 0, num_outputs = {GROUP}> (full_w_v)
        {" ".join(f"minus_weight_{unit} = Neg (weight_{unit})" for unit in range(GROUP))}
        {"".join(_factor(subset) for subset in SUBSETS)}
        factors = Concat <axis = 1> ({", ".join(f"factor{_name(subset)}" for subset in SUBSETS)})
        column_of_factors = Unsqueeze (factors, minus_one)
        upper_queries = Mul (lower_queries, column_of_factors)
    """


def _keys_in_groups() -> str:
    """Lines that give the numbers of an example's keys in both: (groups, subsets, keys)."""
    return _terms("powers_of_key", "key", "1, 0", axis=0)


def _terms(prefix: str, source: str, permutation: str, axis: int) -> str:
    """Lines that give `{prefix}_terms`: the product of `exp(2 source)` over each subset of each group of units.

    Args:
        prefix: Of all names.
        source: Projected queries or keys, (..., positions, U).
        permutation: Brings the units before the positions.
        axis: Of the units then.
    """
    products = "".join(
        f"{prefix}{_name(subset)} = Mul ({prefix}{_name(subset[:-1])}, {prefix}{_name(subset[-1:])})\n"
        for subset in SUBSETS
        if len(subset) > 1
    )
    columns = "".join(
        f"{prefix}{_name(subset)}_column = Unsqueeze ({prefix}{_name(subset)}, {prefix}_axis)\n" for subset in SUBSETS
    )
    return f"""
        {prefix}_doubled = Add ({source}, {source})
        {prefix}_powers = Exp ({prefix}_doubled)
        {prefix}_by_unit = Transpose <perm = [{permutation}]> ({prefix}_powers)
        {_numbered(prefix)} = Split <axis = {axis}, num_outputs = {GROUP}> ({prefix}_by_unit)
        {prefix}_shape = Shape ({prefix}_0)
        {prefix}_one = Constant <value_float = 1.0> ()
        {prefix} = Expand ({prefix}_one, {prefix}_shape)
        {products}
        {prefix}_axis = Constant <value_ints = [{axis + 1}]> ()
        {columns}
        {prefix}_terms = Concat <axis = {axis + 1}> ({", ".join(f"{prefix}{_name(s)}_column" for s in SUBSETS)})
    """


def _factor(subset: tuple[int, ...]) -> str:
    """Lines that give the factor of a subset's term in N."""
    signed = [f"weight_{unit}" if unit in subset else f"minus_weight_{unit}" for unit in range(GROUP)]
    return f"factor{_name(subset)} = Sum ({', '.join(signed)})\n"


def _numbered(prefix: str) -> str:
    return ", ".join(f"{prefix}_{unit}" for unit in range(GROUP))


def _name(subset: tuple[int, ...]) -> str:
    return "".join(f"_{unit}" for unit in subset)
