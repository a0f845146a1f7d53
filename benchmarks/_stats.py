"""Statistics of times, and differences of answers."""

from collections.abc import Sequence

import numpy as np


def summarize(values: Sequence[float]) -> dict[str, float]:
    """Return the median with the 10th and the 90th percentile."""
    p10, median, p90 = (float(value) for value in np.percentile(values, (10, 50, 90)))
    return {"median": median, "p10": p10, "p90": p90}


def summarize_ratio(ours: Sequence[Sequence[float]], peer: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the median and percentiles of peer / ours by round, so that a slow minute of the machine affects both."""
    return summarize([float(np.median(b) / np.median(a)) for a, b in zip(ours, peer, strict=True)])


def find_largest_difference(ours: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """Return the largest difference of any output, relative to the largest magnitude of that output."""
    if [array.shape for array in ours] != [array.shape for array in reference]:
        return float("inf")
    return max(
        (float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, reference, strict=True)), default=0.0
    )
