"""Sessions of onnxruntime: opened on exactly one provider, and run with inputs and outputs on its device."""

import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from .kinds import Arrays
from .standalone import verify

WARM_UP = 5
RUNS = 20
FEWEST = 3  # of runs that take seconds each
MOST_SECONDS = 2.0


class Times(NamedTuple):
    """Milliseconds of runs: the median, and between which the middle four fifths lie."""

    median: float
    p10: float
    p90: float
    runs: int


def opened(folder: Path, provider: str, *, tf32: bool = False) -> Any:
    """A session of a bundle's file. TF32 is off in what `verify.py` opens; on it is for timing alone."""
    with patch.dict(verify.CUDA_OPTIONS, {"use_tf32": "1"} if tf32 else {}):
        return verify.open_session(folder / verify.MODEL, provider)


def opens(folder: Path, provider: str) -> None:
    """Fail with a sentence where the provider cannot be had at all."""
    opened(folder, provider)


def bound(session: Any, inputs: Mapping[str, np.ndarray], provider: str) -> tuple[Callable[[], None], Any]:
    """A run whose inputs lie on the device already and whose outputs stay there, and its binding."""
    import onnxruntime as ort

    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, provider, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, provider)
    return lambda: session.run_with_iobinding(binding), binding


def results(session: Any, binding: Any) -> Arrays:
    """What the last run left, brought back."""
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))


def timed(run: Callable[[], Any], *, quick: bool = False) -> Times:
    """Time runs after some that do not count: at least 20 and for a third of a second, but for 2 seconds at most.

    Args:
        run: What is timed; it returns when it is done.
        quick: Whether three runs will do.
    """
    warm, least, seconds = (1, FEWEST, 0.0) if quick else (WARM_UP, RUNS, MOST_SECONDS / 6)
    for _ in range(warm):
        run()
    taken: list[float] = []
    start = time.perf_counter()
    while len(taken) < least or time.perf_counter() - start < seconds:
        if len(taken) >= FEWEST and time.perf_counter() - start > MOST_SECONDS:
            break
        before = time.perf_counter()
        run()
        taken.append(1e3 * (time.perf_counter() - before))
    p10, median, p90 = np.percentile(taken, [10, 50, 90])
    return Times(float(median), float(p10), float(p90), len(taken))


def freed() -> None:
    """Let go of sessions that nobody holds any more, and of what they hold on the device."""
    gc.collect()


def first_line(error: BaseException) -> str:
    """One line of an error, without what onnxruntime puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:400] if lines else type(error).__name__
