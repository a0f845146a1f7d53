"""Worker process of one contestant: `python _worker.py SPEC.json`, started by `_process.py`.

The `builder` of a spec names a function that receives the spec, imports packages and returns `build`; `build(inputs)`
builds the model and returns a `Runner`. Requests come from standard input, one JSON object per line: `{"build": true}`
builds the model, runs it a few times, and replies with the seconds and the memory without imports; `{"seconds": s}`
runs it for about s seconds and replies with the times of the runs.
"""

import contextlib
import importlib
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn_export._processes import peak_memory

WARM_UP_RUNS = 3  # the second run may need more memory than the first
MAX_RUNS = 2000
FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX"}  # optional packages


def main(file: str) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a library must not be read as a reply
    spec, state = json.loads(Path(file).read_text(encoding="utf-8")), {}
    for request in itertools.chain([{"prepare": True}], map(json.loads, sys.stdin)):
        try:
            reply = _handle_request(request, spec, state)
        except Exception as error:  # noqa: BLE001 - `_process.py` reports the error
            traceback.print_exc()
            reply = _describe_error(error)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if "unavailable" in reply or "failed" in reply:
            return


def _handle_request(request: dict[str, Any], spec: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    if "seconds" in request:
        return _time_runs(state["runner"].run, request["seconds"])
    return _build(spec, state) if "build" in request else _prepare(spec, state)


def _prepare(spec: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    with np.load(spec["inputs"]) as arrays:
        state["inputs"] = dict(arrays)
    module, name = spec["builder"].split(".")
    state["build"] = getattr(importlib.import_module(module), name)(spec)
    return {"ready": True}


def _build(spec: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    initial_memory = peak_memory.resident_memory()  # also resets the peak
    start = time.perf_counter()
    runner = state["runner"] = state["build"](state["inputs"])
    for _ in range(spec["options"].get("runs", WARM_UP_RUNS)):
        runner.run()
    seconds, peak = time.perf_counter() - start, peak_memory.peak_memory()
    np.savez(spec["answer"], *runner.get_answer())
    return {"seconds": seconds, "memory": peak - initial_memory, "initial_memory": initial_memory, **runner.get_facts()}


def _time_runs(run: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """Run for about `seconds` and return the seconds of all runs; the first counts only if it is the only run."""
    first_run = _time_run(run)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while first_run < seconds and len(times) < MAX_RUNS and time.perf_counter() < end:
        times.append(_time_run(run))
    return {"times": times or [first_run]}


def _time_run(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _describe_error(error: Exception) -> dict[str, str]:
    lines = (line.strip() for line in str(error).splitlines())
    sentence = next((line for line in lines if line), "no message")
    if isinstance(error, ModuleNotFoundError) and error.name in FRAMEWORKS:
        return {"unavailable": f"{FRAMEWORKS[error.name]} is not installed"}
    return {"failed": f"{type(error).__name__}: {sentence}"}


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(sys.argv[1])
