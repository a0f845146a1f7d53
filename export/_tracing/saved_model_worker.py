"""Run golden cases through a SavedModel in a worker process without Keras."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .._errors import ExportError
from .._format.cases import load_cases
from .._format.names import Arrays


class SavedModelRun:
    """A worker process that loads a SavedModel and runs golden cases through it.

    The process imports TensorFlow, but cannot import `keras` and `keras_attn`, since the SavedModel must not need them.
    It starts with the constructor and imports TensorFlow while the caller writes the SavedModel; `begin` sends the
    paths, and `outputs` waits for the results. The process ends with the `with` block, and if this process ends.
    """

    def __init__(self) -> None:
        """Start the process."""
        script = Path(__file__).parents[1] / "_processes" / "saved_model_run.py"
        self._results = Path()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> SavedModelRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill the process if it is running."""
        kill_process(self._process)

    def begin(self, saved_model: Path, cases: Path, results: Path) -> None:
        """Send the paths to the process, which runs the cases and writes its outputs to `results`, as cases."""
        stdin = self._process.stdin
        assert stdin is not None
        self._results = results
        with contextlib.suppress(BrokenPipeError):  # `outputs` raises with the message of the process
            stdin.write(format_task(saved_model, cases, results) + "\n")
            stdin.flush()

    def outputs(self) -> list[Arrays]:
        """Return the outputs of every case, in order.

        Raises:
            ExportError: If the process could not load or run the SavedModel.
        """
        assert self._process.stderr is not None
        errors = self._process.stderr.read()
        if self._process.wait() != 0:
            last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
            raise ExportError(f"The SavedModel was written but does not run in a fresh process: {last}")
        return [case.outputs for case in load_cases(self._results)]


def format_task(saved_model: Path, cases: Path, results: Path) -> str:
    """Return the line that the process reads from standard input."""
    return json.dumps([str(saved_model), str(cases), str(results)])


def kill_process(process: subprocess.Popen[Any]) -> None:
    """Kill a process if it is running, and close its pipes."""
    process.kill()  # does nothing to a process that has ended
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(BrokenPipeError):
            if stream is not None:
                stream.close()
