"""Processor, core count and package versions, to record with measurements."""

import contextlib
import functools
import os
import platform
from pathlib import Path

import numpy as np

CONTROL_GROUP = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache  # memory that a run has taken would lower the limit of the next
def available_memory() -> int:
    """Return the bytes that this process may allocate, by Linux and its control group; 4 GiB on other systems."""
    try:
        available = int(Path("/proc/meminfo").read_text(encoding="ascii").split("MemAvailable:")[1].split()[0]) * 1024
    except OSError:
        return 4 * 2**30
    with contextlib.suppress(OSError, ValueError):  # no control group, or the limit `max`
        limit, used = (int((CONTROL_GROUP / name).read_text("ascii")) for name in ("memory.max", "memory.current"))
        available = min(available, limit - used)
    return max(0, available)


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
