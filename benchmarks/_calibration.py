"""How fast the machine is at the moment: a loop that always does the same, of which only others change the time."""

import time

import numpy as np

SECONDS = 0.1
MOVED = 1.1  # times: from then on something else ran beside what was timed
AGAIN = 2  # times that a case is measured at most, where it moved


def calibrate() -> float:
    """Return the median seconds of a fixed small piece of work in this process."""
    matrix = np.random.default_rng(0).standard_normal((128, 128))
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        np.exp(np.sin(matrix)).sum()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def moved(calibrations: list[float]) -> bool:
    """Return whether the machine was not the same all the time."""
    return max(calibrations) > MOVED * min(calibrations)
