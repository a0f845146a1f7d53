"""Medians, spread and fits of what was timed."""

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


def line(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Return the least squares line of y on x, and R squared."""
    slope, start = (float(value) for value in np.polyfit(x, y, 1))
    left = np.asarray(y) - (slope * np.asarray(x) + start)
    total = np.asarray(y) - np.mean(y)
    return {"slope": slope, "start": start, "r2": 1 - float(left @ left) / float(total @ total)}


def largest_difference(ours: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """Return the largest difference of any output, relative to the largest magnitude of that output."""
    if [array.shape for array in ours] != [array.shape for array in reference]:
        return float("inf")
    return max(
        (float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, reference, strict=True)), default=0.0
    )


def bar(text: str, value: float | None, limit: float, *, at_least: bool) -> dict[str, Any]:
    """Return a bar as the reports have it: what was asked, what was measured, and whether it is reached."""
    reached = None if value is None else (value >= limit if at_least else value <= limit)
    return {"bar": text, "limit": limit, "at_least": at_least, "value": value, "reached": reached}
