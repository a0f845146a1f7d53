"""Pytest plugin: replacements of the slow parts of an export.

One process runs all SavedModels instead of a new process for each, bundles are not synced to the disk, and adaptive
attention takes its form for large sizes from some hundred pairs of query and key. Tests with the mark `fresh_process`
run without the replacements, except for fixtures with a wider scope.
"""

import atexit
import json
import pkgutil
import sys
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

import keras_attn_export
from keras_attn_export import ExportError
from keras_attn_export._format.cases import load_cases
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold
from keras_attn_export._tracing.saved_model_worker import format_task

FEW_PAIRS = 256  # golden cases of 17 queries and 17 keys exceed it, so both forms of an adaptive file run


@cache
def start_worker():
    script = Path(keras_attn_export.__file__).with_name("_processes") / "saved_model_run.py"
    command = [sys.executable, "-P", str(Path(__file__).with_name("saved_model_worker.py")), str(script)]
    process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)

    @atexit.register
    def stop_worker():
        process.kill()
        process.communicate()

    return process


class WorkerRun:
    """Replacement of `keras_attn_export._tracing.saved_model_worker.SavedModelRun`, with the shared process."""

    _latest = None

    def __init__(self):
        self._answer = ""

    def begin(self, saved_model, cases, results):
        if WorkerRun._latest is not None:
            WorkerRun._latest._wait()  # an export that starts again leaves the first answer unread
        WorkerRun._latest = self
        self._results, self._answer = results, None
        start_worker().stdin.write(format_task(saved_model, cases, results) + "\n")
        start_worker().stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._wait()  # the next run must not read the answer of this run

    def outputs(self):
        self._wait()
        if self._answer:
            raise ExportError(f"The SavedModel was written but does not run in a fresh process: {self._answer}")
        return [case.outputs for case in load_cases(self._results)]

    def _wait(self):
        if self._answer is None:
            self._answer = json.loads(start_worker().stdout.readline())


FAST_PARTS = {
    "keras_attn_export._export.export_model.SavedModelRun": WorkerRun,
    "keras_attn_export._bundle.atomic_writes._sync": lambda _: None,
}
REAL_PARTS = {name: pkgutil.resolve_name(name) for name in FAST_PARTS}
REAL_THRESHOLDS = dict(LARGE_THRESHOLDS)
LOW_THRESHOLDS = {
    kind: SizeThreshold(min(threshold.ignored_queries, 2), min(threshold.min_pairs, FEW_PAIRS))
    for kind, threshold in LARGE_THRESHOLDS.items()
}


@pytest.fixture(scope="session", autouse=True)
def _use_fast_parts():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FAST_PARTS.items():
            patch.setattr(name, value)
        for kind, threshold in LOW_THRESHOLDS.items():
            patch.setitem(LARGE_THRESHOLDS, kind, threshold)
        yield


@pytest.fixture(autouse=True)
def _use_real_parts(request, monkeypatch):
    if request.node.get_closest_marker("fresh_process"):
        for name in FAST_PARTS:
            monkeypatch.setattr(name, REAL_PARTS[name])
        for kind, threshold in REAL_THRESHOLDS.items():
            monkeypatch.setitem(LARGE_THRESHOLDS, kind, threshold)
