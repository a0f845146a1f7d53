"""Export a model on JAX or torch through a worker process with TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np

from .._errors import ExportError, UnsupportedModelError
from .._format.names import Case
from .._format.parity_report import ParityError
from .._progress import Progress
from .._rounding.keras_implementations import (
    LAYER_OUTPUTS,
    PredictError,
    begins_in,
    layer_differing_from,
    layer_differing_in_predict,
)
from .._rounding.reference import Reference
from .._signature.keras_messages import first_line
from .._signature.signature import Signature
from .._tracing.saved_model_worker import end
from .custom_objects import ImportPaths, find_import_paths
from .export_run import ExportRun
from .tensorflow_worker import ExportTask

# The modules of this process, whatever it did to find them, can be imported there too.
_WORKER_CODE = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from keras_attn_export._export.tensorflow_worker import main; main()"
)


def write_contents_on_tensorflow(
    run: ExportRun, signature: Signature, reference: Reference, import_paths: ImportPaths
) -> None:
    """Fill the empty folder of a bundle from a fresh process with TensorFlow.

    Args:
        run: The export; its own worker is not used.
        signature: The model.
        reference: The golden cases, with the outputs on the backend of this process.
        places: Where the custom classes and functions in the model are.

    Raises:
        UntraceableError: TensorFlow could trace it with some axes static; the folder's contents are worth nothing.
        ParityError: An output differs; the message names the first layer that differs between the backends.
        ExportError: Any other error of `write_contents`, as it was raised there; or the process ended without one.
    """
    task = _save_task(run, signature, reference, import_paths)
    run.on_step("Starting a process with TensorFlow")
    with TensorFlowWorker(run.folder.parent) as process:
        try:
            process.run_task(task, run.on_step)
        except ParityError as error:
            hint = _describe_layer(run, signature, reference.golden.cases, error)
            raise type(error)(f"{error}{hint}", error.report) from None


def _save_task(run: ExportRun, signature: Signature, reference: Reference, import_paths: ImportPaths) -> ExportTask:
    """Save the model for the process, and return its task."""
    run.on_step("Saving the model")
    file = run.temporary_path("model.keras")
    with _saving_errors(signature.model):
        signature.model.save(file)
    samples = None if signature.is_functional else keras.tree.map_structure(np.asarray, dict(signature.samples or {}))
    return ExportTask(
        folder=run.folder,
        import_paths=import_paths,
        floatx=keras.config.floatx(),
        image_data_format=keras.config.image_data_format(),
        policy=signature.model.dtype_policy.compute_dtype,
        inputs=signature.inputs,
        outputs=signature.outputs,
        log_level=logging.getLogger("keras_attn_export").getEffectiveLevel(),
        reference=reference,
        options=replace(run.options, file=file, samples=samples),
    )


def _describe_layer(run: ExportRun, signature: Signature, cases: Sequence[Case], error: ParityError) -> str:
    """Name the first layer that differs, between `predict` and an eager call or between the backends."""
    if isinstance(error, PredictError):
        return begins_in(layer_differing_in_predict(signature, cases[0]))
    layer = layer_differing_from(run.temporary_path(LAYER_OUTPUTS), signature, cases)
    return begins_in(layer, f", which differs between {keras.backend.backend()} and TensorFlow")


def validate_custom_objects(model: keras.Model) -> ImportPaths:
    """Return where the custom classes and functions in a model are, before anything costly is done.

    Raises:
        UnsupportedModelError: No other process can import one, or the model has no configuration.
    """
    with _saving_errors(model):
        return find_import_paths(model)


@contextlib.contextmanager
def _saving_errors(model: keras.Model) -> Iterator[None]:
    try:
        yield
    except UnsupportedModelError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk, not the model
        # the user's own `get_config`
        raise UnsupportedModelError(
            f"`{model.name}` cannot be saved, as a model on {keras.backend.backend()} must be for TensorFlow to trace "
            f"it: {first_line(error)}"
        ) from error


class TensorFlowWorker:
    """A fresh process in which Keras runs on TensorFlow; it ends with the block, and so does whatever it started.

    It also ends when this process does, of whatever cause.
    """

    def __init__(self, scratch: Path) -> None:
        """Start it. Files that it does not keep, and what it prints, go to the folder `scratch`."""
        temporary = scratch / "temporary"
        temporary.mkdir(exist_ok=True)  # a second time, where the first found axes that cannot be traced
        self._output_file = scratch / "printed_by_tensorflow.txt"
        with self._output_file.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _WORKER_CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=_worker_environment(temporary),
                start_new_session=True,  # a group of its own, so that it can be ended with all it has started
            )

    def __enter__(self) -> TensorFlowWorker:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the latter on macOS, for one that ended
                os.killpg(self._process.pid, signal.SIGKILL)
        end(self._process)

    def run_task(self, task: ExportTask, on_step: Progress) -> None:
        """Send a task and wait for its end.

        Raises:
            UntraceableError: What was raised there.
            ExportError: What was raised there, or the process ended without a word.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says below why
            for content in (sys.path, task):
                pickle.dump(content, stdin)
            stdin.flush()
        while True:
            try:
                kind, content = pickle.load(stdout)
            except (EOFError, pickle.UnpicklingError):
                raise ExportError(self._describe_exit()) from None
            if kind == "done":
                return
            if kind == "error":
                raise content
            if kind == "log":
                name, level, message = content
                logging.getLogger(name).log(level, "%s", message)
            else:
                on_step(content)

    def _describe_exit(self) -> str:
        code = self._process.wait()
        lines = self._output_file.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        outcome = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"The process with TensorFlow, which traces the model, {outcome}: {last}"


def _worker_environment(temporary: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)),  # so that nothing of it stays when it is killed
    }
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # the backend of this process holds memory there too
    environment.pop("XLA_FLAGS", None)  # TensorFlow ends the process over a flag that only JAX's XLA knows
    return environment
