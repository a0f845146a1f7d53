"""What an export takes time for, and the tests do not need each time.

One process for all SavedModels in the place of a fresh one for each, no wait until
a bundle is on the disk, and less than thousands of pairs of query and key where attention takes its form for many. A
test marked `fresh_process` gets the real thing, but for what its module shares.

A pytest plugin.
"""

import atexit
import json
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import keras_attn_export
from keras_attn_export import ExportError
from keras_attn_export._format.cases import load_cases
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold
from keras_attn_export._tracing.saved_model_worker import format_task

FEW_PAIRS = 256  # cases of 17 queries and keys are long then, and take both forms of a file that decides by size


@cache
def worker():
    script = Path(keras_attn_export.__file__).with_name("_processes") / "saved_model_run.py"
    command = [sys.executable, "-P", str(Path(__file__).with_name("saved_model_worker.py")), str(script)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )

    @atexit.register
    def end():
        process.kill()
        process.communicate()

    return process


class WorkerRun:
    """`keras_attn_export._tracing.saved_model_worker.SavedModelRun`, by the one process."""

    _latest = None

    def __init__(self):
        self._answer = ""

    def begin(self, saved_model, cases, results):
        if WorkerRun._latest is not None:
            WorkerRun._latest._wait()  # an export that begins again has not asked for the first answer
        WorkerRun._latest = self
        self._results, self._answer = results, None
        worker().stdin.write(format_task(saved_model, cases, results) + "\n")
        worker().stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._wait()  # the next run must not read this one's answer

    def outputs(self):
        self._wait()
        if self._answer:
            raise ExportError(f"The SavedModel was written but does not run in a fresh process: {self._answer}")
        return [case.outputs for case in load_cases(self._results)]

    def _wait(self):
        if self._answer is None:
            self._answer = json.loads(worker().stdout.readline())


CHEAP = {
    "keras_attn_export._export.export_model.SavedModelRun": WorkerRun,
    "keras_attn_export._bundle.atomic_writes._sync": lambda _: None,
}
REAL = {name: pkgutil.resolve_name(name) for name in CHEAP}
ALL_PAIRS = dict(LARGE_THRESHOLDS)
FEW = {
    kind: SizeThreshold(min(least.ignored_queries, 2), min(least.min_pairs, FEW_PAIRS))
    for kind, least in LARGE_THRESHOLDS.items()
}


@pytest.fixture(scope="session", autouse=True)
def _cheap_exports():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CHEAP.items():
            patch.setattr(name, value)
        for kind, least in FEW.items():
            patch.setitem(LARGE_THRESHOLDS, kind, least)
        yield


@pytest.fixture(autouse=True)
def _real_exports(request, monkeypatch):
    if request.node.get_closest_marker("fresh_process"):
        for name in CHEAP:
            monkeypatch.setattr(name, REAL[name])
        for kind, least in ALL_PAIRS.items():
            monkeypatch.setitem(LARGE_THRESHOLDS, kind, least)
