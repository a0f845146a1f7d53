"""Additive scores in blocks of queries, all examples at once; by the sums of `additive_terms.py`, which pass over less.

Whether nothing overflows is asked once a call, of all that any query or key of it may read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .additive_terms import GROUP, factors, filled, filled_weights, full_units, in_range, sums_of_groups, terms, units
from .given import Given
from .heads import repeat_joined
from .masks import Masks
from .operators import Outputs, Value, branch, op, reshape
from .plain import from_scores, scores
from .query_blocks import by_blocks

FEATURES = 2**26  # numbers in the (N, H, rows, Tk, U) features of a block: 256 MB, of which sums of groups take a third
ON_CPU = 2**23  # the same: each product of a block then takes 11 MB


def body(given: Given) -> Outputs:
    """Return the outputs of an additive call."""
    masks = Masks(given)
    keys, values = masks.hidden(given.keys), masks.hidden(given.values)
    guard = in_range(given, _with_zero(masks.hidden_queries()), _with_zero(keys))
    return branch(guard, _in_groups(given, keys, values), _by_tanh(given, keys, values))


def _with_zero(tensor: Value) -> Value:
    """Return all numbers of a tensor and a 0: CUDA has no largest of none."""
    return op.Concat(reshape(tensor, -1), np.zeros(1, np.float32), axis=0)


def _by_blocks(given: Given, scores_of: Callable[..., Value], values: Value, *more: tuple[Value, int]) -> Outputs:
    """Return the outputs of a call; a function gives the scores of a block."""

    def of_block(block: Given, *parts: Value) -> Outputs:
        return from_scores(Masks(block), scores_of(block, *parts), values)

    numbers_of_row = given.N * (given.call.num_heads * full_units(given.call)) * given.Tk
    return by_blocks(given, of_block, numbers_of_row, FEATURES if given.for_device else ON_CPU, *more)


def _by_tanh(given: Given, keys: Value, values: Value) -> Outputs:
    return _by_blocks(given, lambda block: scores(block, keys), values)


def _in_groups(given: Given, keys: Value, values: Value) -> Outputs:
    call, heads = given.call, given.call.num_heads
    full_keys = filled(call, repeat_joined(call, keys, units(call)), heads)

    def of_heads(joined: Value) -> Value:
        return reshape(terms(call, joined, heads), 0, 0, heads, full_units(call) // GROUP, 2**GROUP)

    denominators = op.Transpose(of_heads(full_keys), perm=[3, 0, 2, 4, 1])
    numerators = denominators * op.Unsqueeze(factors(filled_weights(given)), [1, 2, 4])

    def scores_of(_: Given, query_terms: Value) -> Value:
        rows = op.Transpose(query_terms, perm=[3, 0, 2, 1, 4])
        quotients = op.MatMul(rows, numerators) / op.MatMul(rows, denominators)
        if given.for_device:
            of_all_heads = op.ReduceSum(quotients, [0], keepdims=0)
        else:
            sums = sums_of_groups(quotients, full_units(call) // GROUP)
            of_all_heads = reshape(sums, op.Shape(quotients, start=1))
        return op.Squeeze(of_all_heads, [1]) if call.heads is None else of_all_heads

    query_terms = of_heads(filled(call, given.queries, heads))
    return _by_blocks(given, scores_of, values, (query_terms, 5))
