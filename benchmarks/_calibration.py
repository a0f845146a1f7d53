"""Speed of the machine during a measurement: the time of a constant amount of work, which only other load changes.

Other load on the host may take a third of the speed for some seconds. The minimum of several times is not affected by
such a short disturbance, unlike the median. So a race counts as disturbed only if the minima of its two halves differ.
"""

import time

import numpy as np

CALIBRATION_SECONDS = 0.05
MAX_SPEED_RATIO = 1.1  # of the minima; above it, other processes disturbed the race
MAX_ATTEMPTS = 3  # races of a case, if other processes disturb them


def measure_speed() -> float:
    """Return the minimum of the seconds that a constant amount of work takes in this process."""
    matrix = np.random.default_rng(0).standard_normal((128, 128))
    times, end = [], time.perf_counter() + CALIBRATION_SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        np.exp(np.sin(matrix)).sum()
        times.append(time.perf_counter() - start)
    return min(times)


def has_speed_changed(calibrations: list[float]) -> bool:
    """Return True if the minima of the first and of the second half differ by more than `MAX_SPEED_RATIO`."""
    middle = len(calibrations) // 2
    minima = [min(half) for half in (calibrations[:middle], calibrations[middle:]) if half]
    return max(minima) > MAX_SPEED_RATIO * min(minima)
