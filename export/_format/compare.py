"""Comparison of outputs with the expected outputs of a golden case."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .names import Arrays, Case, dtype_name

MIN_FILL = 1e4  # smallest magnitude of a fill value: masks write numbers such as -1e9 for masked elements
MAX_FILLS = 8  # different fill values in one output


def compare(case: Case, actual: Arrays, tolerance: Mapping[str, float], lenience: float = 1.0) -> list[dict[str, Any]]:
    """Compare the outputs of one case and return one row for each output.

    A float may differ by `tolerance["absolute"]`, `tolerance["relative"] * scale_of(expected)` or `lenience` times its
    rounding limit, whichever is largest. All else must be equal, except elements that rounding can change.
    """
    rows = []
    for name in dict.fromkeys([*case.outputs, *actual]):
        difference = _difference(case, actual, name, tolerance, lenience)
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


def _difference(case: Case, outputs: Arrays, name: str, tolerance: Mapping[str, float], lenience: float) -> Difference:
    if name not in outputs or name not in case.outputs:
        return Difference(problem="was not expected" if name in outputs else "is missing")
    expected, actual, rounding = case.outputs[name], outputs[name], case.rounding.get(name)
    if expected.shape != actual.shape:
        return Difference(problem=f"has shape {actual.shape}, expected {expected.shape}")
    if expected.dtype != actual.dtype:
        return Difference(problem=f"has dtype {actual.dtype}, expected {expected.dtype}")
    if not np.issubdtype(expected.dtype, np.floating):
        unequal = np.asarray(expected != actual)
        can_tie = rounding if rounding is not None and rounding.dtype == bool else np.zeros_like(unequal)
        wrong, ties = int(np.count_nonzero(unequal & ~can_tie)), int(np.count_nonzero(unequal & can_tie))
        problem, size = (f"differs in {wrong} of {expected.size} elements", 1.0) if wrong else (None, 0.0)
        return Difference(size, size, size, ties, problem)
    wide_expected, wide_actual = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide_expected) & np.isfinite(wide_actual)
    if not np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True):
        return Difference(problem="has NaN or infinity in other places than expected")
    scale = scale_of(wide_expected)
    limit = np.maximum(tolerance["absolute"], tolerance["relative"] * scale)
    if rounding is not None:
        limit, scale = np.maximum(limit, lenience * rounding), np.maximum(scale, rounding)
    difference = np.where(finite, np.abs(np.where(finite, wide_expected, 0) - np.where(finite, wide_actual, 0)), 0)
    sizes = difference, _ratio(difference, scale), _ratio(difference, limit)
    max_abs, max_rel, of_limit = (float(np.max(size, initial=0.0)) for size in sizes)
    return Difference(max_abs, max_rel, of_limit, problem=None if of_limit <= 1 else "is outside the tolerance")


def _ratio(difference: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the quotient, with 0 / 0 = 0 and x / 0 = infinity."""
    ratio: np.ndarray = np.where(difference > 0, np.inf, 0.0)
    np.divide(difference, size, out=ratio, where=np.broadcast_to(size > 0, difference.shape))
    return ratio


def scale_of(expected: np.ndarray) -> np.ndarray:
    """Return the scale of each number x: max(|x|, min(maximum of its row, maximum of its channel)).

    A row is a slice along the last axis; a channel has all elements with one index on the last axis. The minimum keeps
    a large number in another row and channel from widening the tolerance. Fill values do not count.
    """
    own: np.ndarray = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    if own.size == 0:
        return own
    sizes = without_fills(own)
    flat = sizes.reshape(-1, sizes.shape[-1] if sizes.ndim > 1 else 1)
    channels = flat.max(0, keepdims=True)
    rows = flat.max(1, keepdims=True) if flat.shape[1] > 1 else channels  # a row of one number has no other scale
    smaller = np.broadcast_to(np.minimum(channels, rows), flat.shape).reshape(own.shape)
    scale: np.ndarray = np.maximum(own, smaller)
    return scale


def without_fills(sizes: np.ndarray) -> np.ndarray:
    """Return magnitudes with fill values set to 0: at least 1e4, and either repeated or 1000 times the next one."""
    left = sizes
    for _ in range(MAX_FILLS):
        top = float(left.max(initial=0.0))
        is_top = left >= top * (1 - 1e-4)  # scores were added to the fill value
        smaller = np.where(is_top, 0.0, left)
        if top < MIN_FILL or (np.count_nonzero(is_top) < 2 and float(smaller.max()) > top / 1000):
            break
        left = smaller
    return left
