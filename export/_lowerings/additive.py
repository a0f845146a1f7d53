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
from .blocks import Scores, cut, in_blocks, over_blocks, over_examples
from .masks import hidden, may_lack_keys, pairs, rows
from .ranges import ranges_differ
from .text import CONTRIB

GROUP = 3  # units; with fewer there is more to divide, with more the products take longer and overflow sooner
SUBSETS = [subset for size in range(GROUP + 1) for subset in combinations(range(GROUP), size)]
FEATURES = 5 * 2**19  # elements of the (rows, Tk, U) features in a block; each product then takes 3.3 MB
MOST_ROWS = 2**20  # queries in a block
LEAST_ROWS = 8  # with fewer, what is made ready of the keys for each block takes longer than the products
REACH = 80 / (2 * GROUP)  # largest q + k: a term is then exp(80) at most, 5e34
# Largest q and k: a number that underflows then meets exp(66) at most, and their term is below 1e-9.
FARTHEST = 66 / (2 * GROUP)
HEAVIEST = 100.0  # largest sum of all |w|: rounding then moves a score by 1e-5 at most, by 1e-6 as a rule


def body(call: Call) -> str:
    """Return the body of the ONNX function of an additive call."""
    hides = "" if _reads_all(call) else "hidden_"
    queries = {
        "query_blocks": "float[?, ?, ?] query_blocks_of_example",
        "query_terms": "float[?, ?, ?, ?] query_terms_of_example",
    }
    example = f"""
        limit_or_one = Max (limit, one)
        key = Slice (every_key, zero, limit_or_one, zero)
        {guard("query_blocks_of_example", "key")}
        {", ".join(f"example_{name}" for name in call.outputs)} = If <
            then_branch = {_branch(call, "in_groups", _in_groups(call))},
            else_branch = {_branch(call, "by_tanh", _by_tanh(call))}
        > (in_range)
    """
    return f"""
        {unseen_hidden(call) if hides else ""}
        {filled(call, f"{hides}queries", "full_queries", call.num_heads)}
        {filled(call, f"{hides}keys", "full_keys", call.num_kv_heads)}
        {filled_weights(call)}
        units = Constant <value_ints = [{call.num_heads * full_units(call)}]> ()
        features_of_query = Mul (Tk, units)
        {cut("features_of_query", FEATURES, MOST_ROWS, LEAST_ROWS)}
        {in_blocks("full_queries", "query_blocks_of_heads")}
        {_heads_as_rows(call)}
        {FACTORS}
        {_factors_of_heads(call)}
        {log_terms(call, "query", "query_blocks", call.num_kv_heads)}
        query_terms = Exp (query_log_terms)
        {GUARD_OF_WEIGHTS}
        {over_examples(call, queries, example, "full_keys", f"{hides}values")}
    """


def _reads_all(call: Call) -> bool:
    """Tell whether no pair but those in the ranges of keys of the examples and blocks is kept out."""
    return not (call.has_keys_mask or call.has_pair_mask or call.has_query_lengths or call.band[0] is not None)


def unseen_hidden(call: Call) -> str:
    """Lines that hide what no pair reads: it may be anything, and must not decide the form."""
    lines = pairs(call) + rows(call) + hidden(call, "keys", "values")
    if may_lack_keys(call):
        lines += "hidden_queries = Where (row_sees_in_any_head, queries, nothing)\n"
    return lines


def full_units(call: Call) -> int:
    """The units of a head, in full groups."""
    return units(call) + missing(call)


def missing(call: Call) -> int:
    """How many units a head lacks for full groups."""
    return -units(call) % GROUP


def units(call: Call) -> int:
    """Return the units of a head."""
    size = call.shapes["w_v"][0]
    assert size is not None  # that of a kernel
    return size


def filled(call: Call, source: str, name: str, heads: int) -> str:
    """Lines that give `name`: queries or keys (N, T, heads U), with zeros for the units that each head lacks."""
    if not missing(call):
        return f"{name} = Identity ({source})\n"
    # Pads as tensors: given as `value_ints`, onnxruntime before 1.24 takes them for pads of another rank
    return f"""
        {name}_apart = Constant <value_ints = [0, 0, {heads}, {units(call)}]> ()
        {name}_by_heads = Reshape ({source}, {name}_apart)
        {name}_missing = Constant <value = int64[8] {{0, 0, 0, 0, 0, 0, 0, {missing(call)}}}> ()
        {name}_filled = Pad ({name}_by_heads, {name}_missing)
        {name}_together = Constant <value_ints = [0, 0, {heads * full_units(call)}]> ()
        {name} = Reshape ({name}_filled, {name}_together)
    """


def filled_weights(call: Call) -> str:
    if not missing(call):
        return "full_w_v = Identity (w_v)\n"
    return f"""
        missing_weights = Constant <value = int64[4] {{0, 0, {missing(call)}, 0}}> ()
        full_w_v = Pad (w_v, missing_weights)
    """


def _times(call: Call) -> int:
    """How many heads of queries a head of keys serves."""
    return call.num_heads // call.num_kv_heads


def _heads_as_rows(call: Call) -> str:
    """Lines that give `query_blocks` (N, blocks, H / G rows, G U): heads that share keys are rows of one."""
    if _times(call) == 1:
        return "query_blocks = Identity (query_blocks_of_heads)\n"
    groups, of_head = call.num_kv_heads, full_units(call)
    return f"""
        groups_and_heads = Constant <value_ints = [{groups}, {_times(call)}, {of_head}]> ()
        shape_of_heads = Concat <axis = 0> (N, blocks, rows, groups_and_heads)
        heads_apart = Reshape (query_blocks_of_heads, shape_of_heads)
        heads_first = Transpose <perm = [0, 1, 4, 2, 3, 5]> (heads_apart)
        heads_of_group = Constant <value_ints = [{_times(call)}]> ()
        rows_of_group = Mul (rows, heads_of_group)
        units_of_groups = Constant <value_ints = [{groups * of_head}]> ()
        shape_of_grouped_rows = Concat <axis = 0> (N, blocks, rows_of_group, units_of_groups)
        query_blocks = Reshape (heads_first, shape_of_grouped_rows)
    """


def _factors_of_heads(call: Call) -> str:
    if call.num_kv_heads == 1:
        return "factors = Identity (factors_of_one)\n"
    return f"""
        times_each_group = Constant <value_ints = [{call.num_kv_heads}, 1]> ()
        factors = Tile (factors_of_one, times_each_group)
    """


def _heads_from_rows(call: Call) -> str:
    """Lines that give `scores` (H, rows, keys) of `scores_of_groups` (G, H / G rows, keys)."""
    if _times(call) == 1:
        return "scores = Identity (scores_of_groups)\n"
    return f"""
        number_of_heads = Constant <value_ints = [{call.num_heads}]> ()
        keys_of_scores = Shape <start = -1> (scores_of_groups)
        shape_of_scores = Concat <axis = 0> (number_of_heads, rows, keys_of_scores)
        scores = Reshape (scores_of_groups, shape_of_scores)
    """


def log_terms(call: Call, name: str, source: str, heads: int) -> str:
    """Lines that give `{name}_log_terms` (..., groups, subsets) of projected queries or keys (..., heads U).

    They are bounded from below, as minus infinity times 0 is NaN, where its tanh is -1.
    """
    return f"""
        {name}_places = Shape <end = -1> ({source})
        {name}_groups_of_units = Constant <value_ints = [{heads * full_units(call) // GROUP}, {GROUP}]> ()
        {name}_group_shape = Concat <axis = 0> ({name}_places, {name}_groups_of_units)
        {name}_bounded = Max ({source}, very_low)
        {name}_groups = Reshape ({name}_bounded, {name}_group_shape)
        {name}_log_terms = MatMul ({name}_groups, twice_those_in)
    """


def _in_groups(call: Call) -> str:
    # The groups are the batch, though they come after the queries. The terms of keys stand in rows, group after group:
    # side by side, those of one lie on as many pages of memory as there are keys, and took twice as long at 4,096.
    product = f"{CONTRIB}.FusedMatMul <transBatchA = 1>"
    scores = Scores(
        {"query_terms_of_example": "float[?, ?, ?] query_terms_of_block"},
        _SOME_TERMS if ranges_differ(call) or call.has_keys_mask else _ALL_TERMS,
        f"""
            upper = {product} (query_terms_of_block, some_terms_with_factors)
            lower = {product} (query_terms_of_block, some_terms)
            quotients = Div (upper, lower)
            {_sums_of_groups(call)}
        """,
    )
    return f"""
        {log_terms(call, "key", "key", call.num_kv_heads)}
        key_log_terms_in_rows = Transpose <perm = [1, 2, 0]> (key_log_terms)
        key_terms = Exp (key_log_terms_in_rows)
        column_of_factors = Unsqueeze (factors, two)
        key_terms_with_factors = Mul (key_terms, column_of_factors)
        {over_blocks(call, scores, hides=False)}
    """


_SOME_TERMS = """
    some_terms = Slice (key_terms, first, behind, two)
    some_terms_with_factors = Slice (key_terms_with_factors, first, behind, two)
"""
_ALL_TERMS = """
    some_terms = Identity (key_terms)
    some_terms_with_factors = Identity (key_terms_with_factors)
"""  # of the keys up to the length of the example


def _sums_of_groups(call: Call) -> str:
    """Lines that give `scores` of `quotients` (groups of units of all heads, rows, keys).

    A product with ones: onnxruntime 1.32 takes ten times as long for `ReduceSum` of few groups on two cores as on one.
    """
    groups = full_units(call) // GROUP
    heads = "" if call.heads is None else f"{call.num_kv_heads}, "
    summed = "scores" if call.heads is None else "scores_of_groups"
    return f"""
        ones = Constant <value = float[1, {groups}] {{{", ".join(["1.0"] * groups)}}}> ()
        groups_apart = Constant <value_ints = [{heads}{groups}, -1]> ()
        quotients_in_rows = Reshape (quotients, groups_apart)
        sums_in_rows = MatMul (ones, quotients_in_rows)
        pairs_of_quotients = Shape <start = 1> (quotients)
        {_shape_of_sums(call)}
        {summed} = Reshape (sums_in_rows, shape_of_sums)
        {"" if call.heads is None else _heads_from_rows(call)}
    """


def _shape_of_sums(call: Call) -> str:
    if call.heads is None:
        return "shape_of_sums = Identity (pairs_of_quotients)\n"
    return f"""
        heads_of_keys = Constant <value_ints = [{call.num_kv_heads}]> ()
        shape_of_sums = Concat <axis = 0> (heads_of_keys, pairs_of_quotients)
    """


def _by_tanh(call: Call) -> str:
    if call.heads is not None:
        return _heads_by_tanh(call)
    scores = Scores(
        {"query_blocks_of_example": "float[?, ?] query"},
        "some_keys = Slice (key, first, behind, zero)\n",
        """
            query_column = Unsqueeze (query, one)
            sums = Add (query_column, some_keys)
            features = Tanh (sums)
            scores_column = MatMul (features, full_w_v)
            scores = Squeeze (scores_column, minus_one)
        """,
    )
    return over_blocks(call, scores, hides=False)


def _heads_by_tanh(call: Call) -> str:
    scores = Scores(
        {"query_blocks_of_example": "float[?, ?] query"},
        "some_keys = Slice (key_heads, first, behind, one)\n",
        f"""
            query_in_rows = Reshape (query, shape_of_each)
            query_heads = Transpose <perm = [1, 0, 2]> (query_in_rows)
            query_column = Unsqueeze (query_heads, two)
            key_row = Unsqueeze (some_keys, one)
            sums = Add (query_column, key_row)
            features = Tanh (sums)
            scores_column = MatMul (features, full_w_v)
            scores_of_groups = Squeeze (scores_column, minus_one)
            {_heads_from_rows(call)}
        """,
    )
    return f"""
        shape_of_each = Constant <value_ints = [0, {call.num_kv_heads}, {full_units(call)}]> ()
        keys_in_rows = Reshape (key, shape_of_each)
        key_heads = Transpose <perm = [1, 0, 2]> (keys_in_rows)
        {over_blocks(call, scores, hides=False)}
    """


def _branch(call: Call, name: str, lines: str) -> str:
    axes = {"output": "?, ?, ?", "weights": "?, ?, ?" if call.heads is None else "?, ?, ?, ?"}
    results = ", ".join(f"float[{axes[output]}] {name}_{output}" for output in call.outputs)
    for output in call.outputs:
        lines = lines.replace(f"example_{output}", f"{name}_{output}")
    return f"{name} () => ({results}) {{ {lines} }}"


def guard(queries: str, keys: str) -> str:
    """Lines that give `in_range`: whether nothing overflows for projected queries and keys, and their weights."""
    return f"""
        highest_query = ReduceMax <keepdims = 0> ({queries})
        highest_key = ReduceMax <keepdims = 0> ({keys})
        reach = Add (highest_query, highest_key)
        farthest = Max (highest_query, highest_key)
        most_reach = Constant <value_float = {REACH}> ()
        most_far = Constant <value_float = {FARTHEST}> ()
        sums_in_range = LessOrEqual (reach, most_reach)
        each_in_range = LessOrEqual (farthest, most_far)
        positions_in_range = And (sums_in_range, each_in_range)
        in_range = And (positions_in_range, weights_in_range)
    """


def _by_subset(those_in: float, others: float) -> str:
    """A matrix (units of a group, subsets): one number where the unit is in the subset, another elsewhere."""
    numbers = [those_in if unit in subset else others for unit in range(GROUP) for subset in SUBSETS]
    return f"Constant <value = float[{GROUP}, {len(SUBSETS)}] {{{', '.join(map(str, numbers))}}}> ()"


FACTORS = f"""
    twice_those_in = {_by_subset(2.0, 0.0)}
    those_in_less_others = {_by_subset(1.0, -1.0)}
    very_low = Constant <value_float = -1e30> ()
    group_shape = Constant <value_ints = [-1, {GROUP}]> ()
    weights_in_groups = Reshape (full_w_v, group_shape)
    factors_of_one = MatMul (weights_in_groups, those_in_less_others)
"""
GUARD_OF_WEIGHTS = f"""
    sizes_of_weights = Abs (w_v)
    weight_of_all = ReduceSum <keepdims = 0> (sizes_of_weights)
    heaviest = Constant <value_float = {HEAVIEST}> ()
    weights_in_range = LessOrEqual (weight_of_all, heaviest)
"""
