"""What figures depend on: processor, cores and versions."""

from __future__ import annotations

import os
import platform
from pathlib import Path

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
