"""Attend with masked inputs as they are; if the output is not finite, zero them and retry.

A masked pair has a weight of exactly 0, and 0 v = 0 for each finite value v. Only NaN or infinity leaks through a mask:
0 * inf = NaN, and NaN plus any number is NaN, so a leak is visible in sum(|output|). One reduction over the output thus
replaces a selection over all keys and values, which takes as long as attention itself if there are few queries. The
retry is computed in a branch that is rarely taken. Fully masked rows are selected only if there are such rows.
"""

from collections.abc import Callable

from .._onnx.lazy_values import FLOAT32_MIN, Outputs, Value, if_else, op
from .masks import Masks


def attend_with_nan_fallback(masks: Masks, attention: Callable[[Value, Value], Outputs]) -> Outputs:
    """Return the output (B, Tq, H Dv) of a masked call, and its weights (B, H, Tq, Tk) or (B, Tq, Tk).

    `attention` maps keys (B, Tk, Hkv D) and values (B, Tk, Hkv Dv) to outputs with zero weights at masked pairs.
    """
    inputs = masks.inputs
    attempt = attention(inputs.keys, inputs.values)
    retry = masks.zero_fully_masked_rows(attention(masks.zero_masked(inputs.keys), masks.zero_masked(inputs.values)))
    zeroed_attempt = masks.zero_fully_masked_rows(attempt)
    if inputs.call.mask_differs_by_query:
        return if_else(_is_finite(zeroed_attempt), zeroed_attempt, retry)
    return select_attempt(attempt, masks.every_row_has_key, zeroed_attempt, retry)


def select_attempt(attempt: Outputs, every_row_has_key: Value, zeroed_attempt: Outputs, retry: Outputs) -> Outputs:
    """Return the attempt if it is finite, with zeroed rows unless `every_row_has_key` (a scalar), else the retry."""
    is_finite = _is_finite(attempt)
    return if_else(is_finite & every_row_has_key, attempt, if_else(is_finite, zeroed_attempt, retry))


def _is_finite(outputs: Outputs) -> Value:
    """Return a boolean scalar: whether the output (B, Tq, H Dv) has neither NaN nor infinity, nor an infinite sum."""
    return op.ReduceL1(outputs[0], keepdims=0) <= -FLOAT32_MIN
