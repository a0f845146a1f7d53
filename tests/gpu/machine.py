"""What the numbers depend on: the GPU, its driver, CUDA and cuDNN, versions."""

import contextlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from .standalone import verify


def of_onnxruntime(provider: str) -> dict[str, Any]:
    """What is known without torch."""
    import onnxruntime as ort

    built = _built()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": _nvidia_smi("name,driver_version") if provider == "cuda" else None,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "onnxruntime": ort.__version__,
        "built_for": built,
        "provider_options": dict(verify.CUDA_OPTIONS) if provider == "cuda" else {},
    }


def of_torch() -> dict[str, Any]:
    """What torch tells; nothing where it is not installed. It runs apart: its CUDA may not be onnxruntime's."""
    try:
        import torch
    except ImportError:
        return {}
    told = {"torch": torch.__version__, "torch_cuda": torch.version.cuda, "torch_sees_gpu": torch.cuda.is_available()}
    return told | {"torch_cudnn": torch.backends.cudnn.version()}


def memory_used() -> int | None:
    """MiB in use on the first GPU, by all processes; None where nvidia-smi cannot tell."""
    told = _nvidia_smi("memory.used", "nounits")
    with contextlib.suppress(ValueError):
        return int(told or "")
    return None


def _built() -> dict[str, str]:
    """The versions of CUDA and cuDNN that onnxruntime was built for."""
    try:
        from onnxruntime.capi import build_and_package_info as info
    except ImportError:
        return {}
    return {name: str(getattr(info, name)) for name in ("cuda_version", "cudnn_version") if hasattr(info, name)}


def _nvidia_smi(query: str, *formats: str) -> str | None:
    command = ["nvidia-smi", f"--query-gpu={query}", f"--format={','.join(('csv', 'noheader', *formats))}"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        return (told.stdout.strip().splitlines() or [None])[0] if told.returncode == 0 else None
    return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
