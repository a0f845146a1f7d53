"""How long runs take, and what that depends on: processor, cores and versions."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def usable_cpus() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment() -> dict[str, str]:
    """Return processor, cores, system and versions, for a table beside the numbers."""
    from importlib.metadata import version

    import onnxruntime

    return {
        "processor": processor(),
        "cpus": str(usable_cpus()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "keras-attn": version("keras-attn"),
        "numpy": np.__version__,
        "onnxruntime": onnxruntime.__version__,
    }


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def in_turns(
    runs: Sequence[Callable[[], Any]], seconds: float, *, warm_up: int, fewest: int, most: int
) -> list[list[float]]:
    """Return the seconds that each call takes of some that are called in turns.

    Who begins changes each round, so that neither always runs in the other's caches.

    Args:
        runs: What is called.
        seconds: When no further round begins.
        warm_up: How many rounds before that do not count.
        fewest: How many rounds there are at least.
        most: How many at most.
    """
    taken: list[list[float]] = [[] for _ in runs]
    pairs = list(zip(runs, taken, strict=True))
    for _ in range(warm_up):
        for run in runs:
            run()
    end = time.perf_counter() + seconds
    while len(taken[0]) < fewest or (time.perf_counter() < end and len(taken[0]) < most):
        for run, times in pairs:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        pairs.reverse()
    return taken
