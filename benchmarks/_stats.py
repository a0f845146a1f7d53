"""Medians and spread of what was timed; and what the results say."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median with the 10th and the 90th percentile."""
    p10, median, p90 = (float(value) for value in np.percentile(values, (10, 50, 90)))
    return {"median": median, "p10": p10, "p90": p90}


def ratio(ours: Sequence[Sequence[float]], peer: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the spread of peer over ours, taken round by round: a slow minute of the machine counts for both."""
    return spread([float(np.median(b) / np.median(a)) for a, b in zip(ours, peer, strict=True)])


def largest_difference(ours: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """Return the largest difference of any output, relative to the largest magnitude of that output."""
    if [array.shape for array in ours] != [array.shape for array in reference]:
        return float("inf")
    return max(
        (float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, reference, strict=True)), default=0.0
    )


def rows_of(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the contestants of a case that were timed, by label."""
    return {row["contestant"]: row for row in case["rows"] if "ms" in row}


def speed(case: dict[str, Any], label: str) -> float | None:
    """Return how many times faster than its peer a contestant is; `None` where one of them was not timed."""
    row = rows_of(case).get(label)
    return row["faster"]["median"] if row and row["faster"] else None


def best_speed(case: dict[str, Any], label: str, over: str = "") -> float | None:
    """Return the same of the fastest run of each, over the peer's or another's, which a neighbour slows less."""
    rows, over = rows_of(case), over or case["peer"]
    return rows[over]["ms"]["min"] / rows[label]["ms"]["min"] if {label, over} <= rows.keys() else None


def share(case: dict[str, Any], label: str, of: str) -> float | None:
    """Return the extra memory of a contestant over that of another; `None` where one of them was not timed."""
    rows = rows_of(case)
    return rows[label]["memory"] / rows[of]["memory"] if {label, of} <= rows.keys() else None


def inverse(value: float | None) -> float | None:
    """Return a time for a speed."""
    return None if value is None else 1 / value


def bar(text: str, measured: Any, limit: float, *, at_least: bool = True) -> dict[str, Any]:
    """Return an aim as the reports have it: what was asked, what was measured, and whether it is reached.

    Of several numbers the worst counts. One that was not measured, `None`, leaves the whole open.
    """
    values = measured if isinstance(measured, list) else [measured]
    value = None if None in values or not values else (min if at_least else max)(values)
    reached = None if value is None else (value >= limit if at_least else value <= limit)
    return {"bar": text, "limit": limit, "at_least": at_least, "value": value, "reached": reached}
