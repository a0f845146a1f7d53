"""Comparison of outputs with the expected outputs of a golden case."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .names import Arrays, Case, dtype_name

# Masks write fill values such as -1e9 for masked elements. Ordinary outputs rarely have a magnitude of 1e4.
MIN_FILL_VALUE = 1e4
MAX_FILL_VALUES = 8  # distinct fill values in one output


def compare(case: Case, actual: Arrays, tolerance: Mapping[str, float], factor: float = 1.0) -> list[dict[str, Any]]:
    """Compare the outputs of one case and return one row for each output.

    A float x may differ by max(`tolerance["absolute"]`, `tolerance["relative"]` * scale of x, `factor` * rounding limit
    of x). NaN, infinities, integers, booleans and strings must be equal, except elements that rounding can change.
    """
    rows = []
    for name in dict.fromkeys([*case.outputs, *actual]):
        difference = _difference(case, actual, name, tolerance, factor)
        array = case.outputs[name] if name in case.outputs else actual[name]
        row = {"name": name, "case": case.name, "shape": list(array.shape), "dtype": dtype_name(array)}
        passed = difference.problem is None
        rows.append({**row, **difference._asdict(), "tolerance": dict(tolerance), "passed": passed})
    return rows


class Difference(NamedTuple):
    """Largest difference of two arrays, and the problem: None if the arrays match."""

    max_abs: float = math.inf
    max_rel: float = math.inf  # difference / max(scale, rounding limit)
    of_limit: float = math.inf  # difference / limit
    ties: int = 0  # elements that differ because of rounding
    problem: str | None = None


def _difference(case: Case, outputs: Arrays, name: str, tolerance: Mapping[str, float], factor: float) -> Difference:
    if name not in outputs or name not in case.outputs:
        return Difference(problem="was not expected" if name in outputs else "is missing")
    expected, actual, rounding = case.outputs[name], outputs[name], case.rounding_limits.get(name)
    if expected.shape != actual.shape:
        return Difference(problem=f"has shape {actual.shape}, expected {expected.shape}")
    if expected.dtype != actual.dtype:
        return Difference(problem=f"has dtype {actual.dtype}, expected {expected.dtype}")
    if not np.issubdtype(expected.dtype, np.floating):
        unequal = np.asarray(expected != actual)
        can_tie = rounding if rounding is not None and rounding.dtype == bool else np.zeros_like(unequal)
        errors, ties = int(np.count_nonzero(unequal & ~can_tie)), int(np.count_nonzero(unequal & can_tie))
        problem, value = (f"differs in {errors} of {expected.size} elements", 1.0) if errors else (None, 0.0)
        return Difference(value, value, value, ties, problem)
    expected64, actual64 = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(expected64) & np.isfinite(actual64)
    if not np.array_equal(expected64[~finite], actual64[~finite], equal_nan=True):
        return Difference(problem="has NaN or infinity in other places than expected")
    scale = scale_of(expected64)
    limit = np.maximum(tolerance["absolute"], tolerance["relative"] * scale)
    if rounding is not None:
        limit, scale = np.maximum(limit, factor * rounding), np.maximum(scale, rounding)
    difference = np.where(finite, np.abs(np.where(finite, expected64, 0) - np.where(finite, actual64, 0)), 0)
    measures = difference, _divide(difference, scale), _divide(difference, limit)
    max_abs, max_rel, of_limit = (float(np.max(measure, initial=0.0)) for measure in measures)
    return Difference(max_abs, max_rel, of_limit, problem=None if of_limit <= 1 else "is outside the tolerance")


def _divide(difference: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the quotient, with 0 / 0 = 0 and x / 0 = infinity."""
    ratio: np.ndarray = np.where(difference > 0, np.inf, 0.0)
    np.divide(difference, denominator, out=ratio, where=np.broadcast_to(denominator > 0, difference.shape))
    return ratio


def scale_of(expected: np.ndarray) -> np.ndarray:
    """Return the scale of each element x: max(|x|, min(max |x| in its row, max |x| in its channel)).

    A row is a slice along the last axis; a channel has all elements with one index on the last axis. The minimum keeps
    a large element in another row and channel from widening the tolerance. Fill values count as 0.
    """
    magnitudes: np.ndarray = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    if magnitudes.size == 0:
        return magnitudes
    without_fill_values = zero_fill_values(magnitudes)
    flat = without_fill_values.reshape(-1, without_fill_values.shape[-1] if without_fill_values.ndim > 1 else 1)
    channels = flat.max(0, keepdims=True)
    rows = flat.max(1, keepdims=True) if flat.shape[1] > 1 else channels  # of one element, the maximum is |x| itself
    shared_scale = np.broadcast_to(np.minimum(channels, rows), flat.shape).reshape(magnitudes.shape)
    scale: np.ndarray = np.maximum(magnitudes, shared_scale)
    return scale


def zero_fill_values(magnitudes: np.ndarray) -> np.ndarray:
    """Set fill values to 0: magnitudes of at least 1e4 that are repeated or exceed the next one 1000 times."""
    remaining = magnitudes
    for _ in range(MAX_FILL_VALUES):
        largest = float(remaining.max(initial=0.0))
        is_largest = remaining >= largest * (1 - 1e-4)  # scores were added to the fill value
        smaller = np.where(is_largest, 0.0, remaining)
        if largest < MIN_FILL_VALUE or (np.count_nonzero(is_largest) < 2 and float(smaller.max()) > largest / 1000):
            break
        remaining = smaller
    return remaining
