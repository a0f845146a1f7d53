"""Additive scores in blocks of queries, all examples at once; by the sums of `additive.py`, which pass over less.

Whether nothing overflows is asked once a call, of all that any query or key of it may read.
"""

from __future__ import annotations

from .._tracing.attention_calls import Call
from . import plain
from .additive import (
    FACTORS,
    GROUP,
    GUARD_OF_WEIGHTS,
    filled,
    filled_weights,
    full_units,
    guard,
    log_terms,
    units,
    unseen_hidden,
)
from .flash import repeated
from .masks import is_masked, may_lack_keys, pairs, rows
from .query_blocks import by_blocks
from .text import chosen

FEATURES = 2**24  # numbers in the (N, H, rows, Tk, U) features of a block: 64 MB, of which sums of groups take a third


def body(call: Call) -> str:
    """Return the body of the ONNX function of an additive call."""
    seen = "hidden_" if is_masked(call) else ""
    values = f"{seen}values"
    return f"""
        {unseen_hidden(call) if is_masked(call) else ""}
        {filled_weights(call)}
        {GUARD_OF_WEIGHTS}
        {_with_zero("hidden_queries" if may_lack_keys(call) else "queries", "guarded_queries")}
        {_with_zero(f"{seen}keys", "guarded_keys")}
        {guard("guarded_queries", "guarded_keys")}
        features_of_pair = Constant <value_ints = [{call.num_heads * full_units(call)}]> ()
        features_of_examples = Mul (N, features_of_pair)
        features_of_row = Mul (features_of_examples, Tk)
        {chosen(call, "in_range", _in_groups(call, f"{seen}keys", values), _by_tanh(call, f"{seen}keys", values), "if")}
    """


def _with_zero(source: str, name: str) -> str:
    """Lines that give `name`, all numbers of a tensor and a 0: CUDA has no largest of none."""
    return f"""
        {name}_in_a_row = Reshape ({source}, minus_one)
        {name}_zero = Constant <value_floats = [0.0]> ()
        {name} = Concat <axis = 0> ({name}_in_a_row, {name}_zero)
    """


def _by_tanh(call: Call, keys: str, values: str) -> str:
    return by_blocks(call, _block(call, plain.scores(call, keys), values), "features_of_row", FEATURES)


def _block(call: Call, scores: str, values: str) -> str:
    masks = pairs(call) + rows(call) if is_masked(call) else ""
    return masks + plain.from_scores(call, scores, values)


def _in_groups(call: Call, keys: str, values: str) -> str:
    heads_and_groups = f"{call.num_heads}, {full_units(call) // GROUP}"
    terms_of_heads = f"Constant <value_ints = [0, 0, {heads_and_groups}, {2**GROUP}]> ()"
    scores = f"""
        shape_of_query_terms = {terms_of_heads}
        query_terms_apart = Reshape (query_terms, shape_of_query_terms)
        query_rows = Transpose <perm = [3, 0, 2, 1, 4]> (query_terms_apart)
        upper = MatMul (query_rows, key_terms_with_factors)
        lower = MatMul (query_rows, key_terms)
        quotients = Div (upper, lower)
        scores_of_heads = ReduceSum <keepdims = 0> (quotients, zero)
        scores = {"Squeeze (scores_of_heads, one)" if call.heads is None else "Identity (scores_of_heads)"}
    """
    blocks = by_blocks(
        call, _block(call, scores, values), "features_of_row", FEATURES, {"query_terms": "float[?, ?, ?, ?]"}
    )
    return f"""
        {FACTORS}
        {filled(call, "queries", "full_queries", call.num_heads)}
        {repeated(call, keys, "keys_of_all_heads", units(call), 2)}
        {filled(call, "keys_of_all_heads", "full_keys", call.num_heads)}
        {log_terms(call, "query", "full_queries", call.num_heads)}
        {log_terms(call, "key", "full_keys", call.num_heads)}
        query_terms = Exp (query_log_terms)
        shape_of_key_terms = {terms_of_heads}
        key_log_terms_apart = Reshape (key_log_terms, shape_of_key_terms)
        key_log_terms_in_rows = Transpose <perm = [3, 0, 2, 4, 1]> (key_log_terms_apart)
        key_terms = Exp (key_log_terms_in_rows)
        axes_around_factors = Constant <value_ints = [1, 2, 4]> ()
        factors_of_groups = Unsqueeze (factors_of_one, axes_around_factors)
        key_terms_with_factors = Mul (key_terms, factors_of_groups)
        {blocks}
    """
