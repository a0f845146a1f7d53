"""Comparison of file size, run time and top-1 agreement of a converted file with float32."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._format.interruptible_session import open_session
from .._format.names import Arrays, Case
from .._latency import measure_latencies

_MAX_ROUNDS, _SECONDS = 30, 1.0  # bounds the time that an export spends on a figure for information


def compare_size_and_time(converted: Path, float32: Path, cases: Sequence[Case], provider: str) -> dict[str, Any]:
    """Return sizes and run times of the converted file and of the float32 file, and their ratios.

    Run times are medians of alternating runs, on one thread, of the golden case with the largest inputs.
    """
    name, inputs, *_ = max(cases, key=lambda case: sum(array.nbytes for array in case.inputs.values()))
    size, float32_size = (_count_bytes(path) for path in (converted, float32))
    sessions = [open_session(path, provider, threads=1) for path in (converted, float32)]
    _, latencies = measure_latencies(sessions, inputs, _SECONDS, warm_up_rounds=1, min_rounds=3, max_rounds=_MAX_ROUNDS)
    time, float32_time = (1000 * statistics.median(seconds) for seconds in latencies)
    return {
        "bytes": size,
        "float32_bytes": float32_size,
        "size_ratio": size / float32_size,
        "milliseconds": time,
        "float32_milliseconds": float32_time,
        "time_ratio": time / float32_time,
        "timed_case": name,
    }


def _count_bytes(model: Path) -> int:
    """Return the size of an ONNX file with its external data, in bytes."""
    return sum(path.stat().st_size for path in model.parent.glob(f"{model.name}*"))


def measure_top1_agreement(cases: Sequence[Case], actual: Sequence[Arrays]) -> dict[str, dict[str, float]]:
    """Return the share of rows with the same largest class (`agreement`), and the number of rows, by output.

    Only outputs of class scores are compared, which a softmax over classes computes: the last axis has the same size,
    at least 2, in all cases, and its rows are not negative and sum to 1. Attention weights have rows of this kind too,
    but the number of keys, and so the size of the last axis, varies.
    """
    agreement = {}
    for name in cases[0].outputs:
        expected = [case.outputs[name] for case in cases]
        if _are_class_scores(expected):
            pairs = zip(expected, (outputs[name] for outputs in actual), strict=True)
            is_same = np.concatenate([np.ravel(left.argmax(-1) == right.argmax(-1)) for left, right in pairs])
            agreement[name] = {"agreement": float(is_same.mean()), "rows": is_same.size}
    return agreement


def _are_class_scores(arrays: Sequence[np.ndarray]) -> bool:
    class_counts = {array.shape[-1] if array.ndim > 1 else 0 for array in arrays}
    if len(class_counts) > 1 or min(class_counts) < 2 or any(array.dtype.kind != "f" for array in arrays):
        return False
    return any(array.size for array in arrays) and all(
        np.all(array >= 0) and np.allclose(array.sum(-1, dtype=np.float64), 1, atol=1e-3) for array in arrays
    )
