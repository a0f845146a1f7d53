"""Measure what one ONNX model takes of memory: `python peak_memory.py MODEL CASES.npz PROVIDER THREADS`.

Started by `_analysis/bench_bundle.py` as a process of its own, with numpy and onnxruntime only, so that nothing else is
counted. It prints JSON: `process`, the highest resident memory of the whole process, and `model`, by how much loading
the model and running it rose above what the process held before; bytes both.
"""

import contextlib
import json
import re
import runpy
import sys
from pathlib import Path

RUNS = 3  # the second run may still take memory that the first did not need


def main(model: str, inputs: str, provider: str, threads: str) -> None:
    """Load, run, print."""
    verify = runpy.run_path(str(Path(__file__).with_name("verify.py")))  # needs no package around it
    verify["check_provider"](provider)  # imports onnxruntime
    ((_, arrays, *_),) = verify["load_cases"](Path(inputs))
    before = _resident()
    session = verify["open_session"](Path(model), provider, threads=int(threads))
    for _ in range(RUNS):
        verify["run_session"](session, arrays)
    peak = _peak()
    print(json.dumps({"process": peak, "model": peak - before}))


def _resident() -> int:
    """Return the memory held now, and let the peak start from it where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak falls back to what is held now
    return _linux("VmRSS") or _peak()


def _peak() -> int:
    # ru_maxrss of a new process starts at the peak of the one that started it, on Linux: it is the second choice
    if peak := _linux("VmHWM"):
        return peak
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _linux(field: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s+(\d+) kB", status, flags=re.MULTILINE)
    return int(found[1]) * 1024 if found else None


if __name__ == "__main__":
    main(*sys.argv[1:])
