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
    """A fresh Python process that loads a SavedModel and runs golden cases through it.

    The process has TensorFlow, but `keras` and `keras_attn` cannot be imported there: the SavedModel must stand alone.
    It starts at once, while the caller has yet to make what is checked; `begin` tells it of that, and `outputs` waits
    for it. It ends with the block, and when this process does, of whatever cause.
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
        """End the process, if it has not ended yet."""
        end(self._process)

    def begin(self, saved_model: Path, cases: Path, results: Path) -> None:
        """Let the process run the cases. `results` is where it writes its outputs, as cases."""
        stdin = self._process.stdin
        assert stdin is not None
        self._results = results
        with contextlib.suppress(BrokenPipeError):  # it has ended, and `outputs` says why
            stdin.write(task(saved_model, cases, results) + "\n")
            stdin.flush()

    def outputs(self) -> list[Arrays]:
        """Return the outputs of every case, in order.

        Raises:
            ExportError: The SavedModel could not be loaded or run.
        """
        assert self._process.stderr is not None
        errors = self._process.stderr.read()
        if self._process.wait() != 0:
            last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
            raise ExportError(f"The SavedModel was written but does not run in a fresh process: {last}")
        return [case.outputs for case in load_cases(self._results)]


def task(saved_model: Path, cases: Path, results: Path) -> str:
    """Return the line that the process reads."""
    return json.dumps([str(saved_model), str(cases), str(results)])


def end(process: subprocess.Popen[Any]) -> None:
    """End a process, if it has not ended yet, and close its pipes."""
    process.kill()  # does nothing to a process that has ended
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(BrokenPipeError):
            if stream is not None:
                stream.close()
