"""Processor, core count, memory and package versions of this machine."""

import contextlib
import functools
import os
import platform
from pathlib import Path

import numpy as np

CONTROL_GROUP = Path("/sys/fs/cgroup")


def count_usable_cpus() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Cached, because the memory of a first run would lower the limit of the second.
@functools.cache
def measure_available_memory() -> int:
    """Return the bytes that this process may allocate according to Linux and its control group, else 4 GiB."""
    try:
        available = int(Path("/proc/meminfo").read_text(encoding="ascii").split("MemAvailable:")[1].split()[0]) * 1024
    except OSError:
        return 4 * 2**30
    with contextlib.suppress(OSError, ValueError):  # no control group, or "max" for no limit
        limit, usage = (int((CONTROL_GROUP / name).read_text("ascii")) for name in ("memory.max", "memory.current"))
        available = min(available, limit - usage)
    return max(0, available)


def describe_environment() -> dict[str, str]:
    """Return processor, cores, system and versions, to record with measurements."""
    from importlib.metadata import version

    import onnxruntime

    return {
        "processor": read_processor_name(),
        "cpus": str(count_usable_cpus()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "keras-attn": version("keras-attn"),
        "numpy": np.__version__,
        "onnxruntime": onnxruntime.__version__,
    }


def read_processor_name() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
