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
and that the weights are not so large that the rounding shows, for each example; otherwise tanh is taken.
"""

from __future__ import annotations

from itertools import combinations

from .._tracing.attention_calls import Call
from .blocks import block_outputs, block_sizes, example_outputs, from_blocks, in_blocks, over_blocks, over_examples
from .text import CONTRIB

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
        "query_terms": "float[?, ?, ?, ?] query_terms_of_example",
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
        {in_blocks(call, "queries", "missing_units")}
        {_FACTORS}
        {_log_terms("query", "query_blocks")}
        query_terms = Exp (query_log_terms)
        {_GUARD_OF_WEIGHTS}
        {block_outputs(call)} = {over_examples(call, inputs, example, example_outputs(call))}
        {from_blocks(call)}
    """


def _log_terms(name: str, source: str) -> str:
    """Lines that give `{name}_log_terms` (..., groups, subsets) of projected queries or keys (..., U).

    They are bounded from below, as minus infinity times 0 is NaN, where its tanh is -1.
    """
    return f"""
        {name}_places = Shape <end = -1> ({source})
        {name}_group_shape = Concat <axis = 0> ({name}_places, group_shape)
        {name}_bounded = Max ({source}, very_low)
        {name}_groups = Reshape ({name}_bounded, {name}_group_shape)
        {name}_log_terms = MatMul ({name}_groups, twice_those_in)
    """


def _in_groups(call: Call) -> str:
    blocks = {"query_terms_of_example": "float[?, ?, ?] query_terms_of_block"}
    product = f"{CONTRIB}.FusedMatMul <transBatchA = 1>"  # the groups are the batch, though they come after the queries
    scores = f"""
        upper = {product} (query_terms_of_block, key_terms_with_factors)
        lower = {product} (query_terms_of_block, key_terms)
        quotients = Div (upper, lower)
        scores = ReduceSum <keepdims = 0> (quotients, zero)
    """
    return f"""
        {_log_terms("key", "key")}
        key_log_terms_by_group = Transpose <perm = [1, 2, 0]> (key_log_terms)
        key_terms = Exp (key_log_terms_by_group)
        key_terms_with_factors = Mul (key_terms, factors)
        {over_blocks(call, blocks, scores, "groups")}
    """


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


def _by_subset(those_in: float, others: float) -> str:
    """A matrix (units of a group, subsets): one number where the unit is in the subset, another elsewhere."""
    numbers = [those_in if unit in subset else others for unit in range(GROUP) for subset in SUBSETS]
    return f"Constant <value = float[{GROUP}, {len(SUBSETS)}] {{{', '.join(map(str, numbers))}}}> ()"


_FACTORS = f"""
    twice_those_in = {_by_subset(2.0, 0.0)}
    those_in_less_others = {_by_subset(1.0, -1.0)}
    very_low = Constant <value_float = -1e30> ()
    group_shape = Constant <value_ints = [-1, {GROUP}]> ()
    weights_in_groups = Reshape (full_w_v, group_shape)
    factors_of_terms = MatMul (weights_in_groups, those_in_less_others)
    factors = Unsqueeze (factors_of_terms, minus_one)
"""
_FULL = """
    missing_units = Identity (zero)
    full_keys = Identity (keys)
    full_w_v = Identity (w_v)
"""
# Pads as tensors: given as `value_ints`, onnxruntime before 1.24 takes them for pads of another rank
_FILLED = """
    missing_units = Constant <value_ints = [{missing}]> ()
    missing_in_keys = Constant <value = int64[6] {{0, 0, 0, 0, 0, {missing}}}> ()
    missing_weights = Constant <value = int64[4] {{0, 0, {missing}, 0}}> ()
    full_keys = Pad (keys, missing_in_keys)
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
