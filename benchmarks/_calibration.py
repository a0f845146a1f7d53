"""How fast the machine is at the moment: a loop that always does the same, of which only others change the time.

A neighbour on the same core of the host may take a third of the speed for some seconds, and leave again: then minima
tell what medians do not, and only where the best of some time is another than that of another has the machine moved.
"""

import time

import numpy as np

SECONDS = 0.05
MOVED = 1.1  # times: from then on something else ran beside what was timed
AGAIN = 3  # times that a case is measured at most, where it moved


def calibrate() -> float:
    """Return the fewest seconds of a fixed small piece of work in this process."""
    matrix = np.random.default_rng(0).standard_normal((128, 128))
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        np.exp(np.sin(matrix)).sum()
        times.append(time.perf_counter() - start)
    return min(times)


def moved(calibrations: list[float]) -> bool:
    """Return whether the best of the first half is another than that of the second."""
    middle = len(calibrations) // 2
    best = [min(half) for half in (calibrations[:middle], calibrations[middle:]) if half]
    return max(best) > MOVED * min(best)
