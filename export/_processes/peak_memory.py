"""Script: measure the memory of one ONNX model: `python peak_memory.py MODEL CASES.npz PROVIDER THREADS`.

`_bundle/bench_bundle.py` starts the script as a worker process that imports only numpy and onnxruntime. The script
prints JSON: `process`, the peak resident memory of the process, and `model`, the increase by loading and running the
model; both in bytes.
"""

import contextlib
import json
import re
import sys
from pathlib import Path

RUNS = 3  # a second run may allocate more memory than the first


def main(model: str, inputs: str, provider: str, threads: str) -> None:
    """Load and run the model, and print the memory."""
    # `_format` is imported as a top-level package, because importing `keras_attn_export` would take memory.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from _format.cases import load_cases
    from _format.interruptible_session import check_provider, open_session, run_session

    check_provider(provider)  # imports onnxruntime
    ((_, arrays, *_),) = load_cases(Path(inputs))
    initial = resident_memory()
    session = open_session(Path(model), provider, threads=int(threads))
    for _ in range(RUNS):
        run_session(session, arrays)
    peak = peak_memory()
    print(json.dumps({"process": peak, "model": peak - initial}))


def resident_memory() -> int:
    """Return the resident memory in bytes, and reset the peak to it on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: resets VmHWM
    return _read_status_bytes("VmRSS") or peak_memory()


def peak_memory() -> int:
    """Return the peak resident memory in bytes."""
    # On Linux `ru_maxrss` of a new process starts at the peak of its parent, so VmHWM is read first.
    if peak := _read_status_bytes("VmHWM"):
        return peak
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _read_status_bytes(field: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{field}:\s+(\d+) kB", status, flags=re.MULTILINE)
    return int(match[1]) * 1024 if match else None


if __name__ == "__main__":
    main(*sys.argv[1:])
