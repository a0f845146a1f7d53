"""The process of one contestant: `python _worker.py SPEC.json`. Started and spoken to by `_process.py`.

The kind of a contestant names a function, which is called with the spec, imports what it needs and returns `build`;
`build(inputs)` makes the model and returns a `Runner`: so memory can be measured from between them. Then the process
waits for requests, a line of JSON each, on standard input: `{"build": true}` makes the model, runs it a few times and
answers with what that took; `{"seconds": s}` runs it for about that long and answers with the time of each run.
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

RUNS = 3  # the second run may still take memory that the first did not need
MOST_RUNS = 2000
FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX"}  # not brought along


def main(file: str) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for a reply
    spec, state = json.loads(Path(file).read_text(encoding="utf-8")), {}
    for request in itertools.chain([{"prepare": True}], map(json.loads, sys.stdin)):
        try:
            reply = _reply(request, spec, state)
        except Exception as error:  # noqa: BLE001 - whatever it is, `_process.py` says it
            traceback.print_exc()
            reply = _trouble(error)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if "unavailable" in reply or "failed" in reply:
            return


def _reply(request: dict[str, Any], spec: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    if "seconds" in request:
        return _timed(state["runner"].run, request["seconds"])
    return _build(spec, state) if "build" in request else _prepare(spec, state)


def _prepare(spec: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    with np.load(spec["inputs"]) as arrays:
        state["inputs"] = dict(arrays)
    module, name = spec["kind"].split(".")
    state["build"] = getattr(importlib.import_module(module), name)(spec)
    return {"ready": True}


def _build(spec: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    before = peak_memory.resident_memory()  # and let the peak start from there
    start = time.perf_counter()
    runner = state["runner"] = state["build"](state["inputs"])
    for _ in range(spec["options"].get("runs", RUNS)):
        runner.run()
    seconds, peak = time.perf_counter() - start, peak_memory.peak_memory()
    np.savez(spec["answer"], *runner.answer())
    return {"seconds": seconds, "memory": peak - before, "before": before, **runner.facts()}


def _timed(run: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """Run for about so long and return the seconds of each run; the first counts only where it fills the time."""
    first = _seconds(run)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while first < seconds and len(times) < MOST_RUNS and time.perf_counter() < end:
        times.append(_seconds(run))
    return {"times": times or [first]}


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _trouble(error: Exception) -> dict[str, str]:
    lines = (line.strip() for line in str(error).splitlines())
    sentence = next((line for line in lines if line), "no message")
    if isinstance(error, ModuleNotFoundError) and error.name in FRAMEWORKS:
        return {"unavailable": f"{FRAMEWORKS[error.name]} is not installed"}
    return {"failed": f"{type(error).__name__}: {sentence}"}


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(sys.argv[1])
