"""What the numbers depend on: processor, versions, load."""

import contextlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from keras_attn_export._machine import processor, usable_cpus

PACKAGES = ("keras-attn", "keras", "tensorflow", "onnxruntime", "onnxruntime-gpu", "torch", "jax", "numpy")


def environment(provider: str, threads: int) -> dict[str, Any]:
    """Return what the numbers depend on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": usable_cpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "provider": provider,
        "gpu": _gpu() if provider == "cuda" else None,
        "threads": threads,
        "versions": {"python": platform.python_version(), **{name: v for name in PACKAGES if (v := _version(name))}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu() -> str | None:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    return None
