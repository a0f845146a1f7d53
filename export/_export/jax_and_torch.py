"""Export of a model on JAX or torch through a worker process with TensorFlow."""

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
from .._progress import ProgressCallback
from .._rounding.keras_implementations import (
    LAYER_OUTPUTS_FILE,
    PredictError,
    find_layer_differing_from_saved,
    find_layer_differing_in_predict,
    name_differing_layer,
)
from .._rounding.reference import Reference
from .._signature.keras_messages import shorten_message
from .._signature.signature import Signature
from .._tracing.saved_model_worker import kill_process
from .custom_objects import ImportPaths, find_import_paths
from .export_run import ExportRun
from .tensorflow_worker import ExportTask

# The worker gets the `sys.path` of this process, so that it can import modules from added folders.
_WORKER_CODE = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from keras_attn_export._export.tensorflow_worker import main; main()"
)


def write_contents_on_tensorflow(
    run: ExportRun, signature: Signature, reference: Reference, import_paths: ImportPaths
) -> None:
    """Fill the empty folder of a bundle in a worker process with TensorFlow.

    `reference` has the outputs on the backend of this process. `run.worker` is not used.

    Raises:
        UntraceableError: If TensorFlow can trace the model with some axes static; the folder is then incomplete.
        ParityError: If an output differs; the message names the first layer that differs between the backends.
        ExportError: Any other error of `write_contents` in the worker; or if the worker ends without a reply.
    """
    task = _save_task(run, signature, reference, import_paths)
    run.on_step("Starting a process with TensorFlow")
    with TensorFlowWorker(run.folder.parent) as process:
        try:
            process.run_task(task, run.on_step)
        except ParityError as error:
            hint = _describe_layer(run, signature, reference.golden_cases.cases, error)
            raise type(error)(f"{error}{hint}", error.report) from None


def _save_task(run: ExportRun, signature: Signature, reference: Reference, import_paths: ImportPaths) -> ExportTask:
    """Save the model to a file, and return the task of the worker."""
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
    """Return the sentence about the first layer that differs, between `predict` and an eager call or the backends."""
    if isinstance(error, PredictError):
        return name_differing_layer(find_layer_differing_in_predict(signature, cases[0]))
    layer = find_layer_differing_from_saved(run.temporary_path(LAYER_OUTPUTS_FILE), signature, cases)
    return name_differing_layer(layer, f", which differs between {keras.backend.backend()} and TensorFlow")


def validate_custom_objects(model: keras.Model) -> ImportPaths:
    """Return the import paths of custom objects, or raise `UnsupportedModelError` if the model cannot be saved."""
    with _saving_errors(model):
        return find_import_paths(model)


@contextlib.contextmanager
def _saving_errors(model: keras.Model) -> Iterator[None]:
    try:
        yield
    except UnsupportedModelError:
        raise
    except Exception as error:  # of any class, from the user's `get_config`
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the file system
        raise UnsupportedModelError(
            f"`{model.name}` cannot be saved, which a model on {keras.backend.backend()} needs for TensorFlow to trace "
            f"it: {shorten_message(error)}"
        ) from error


class TensorFlowWorker:
    """Worker process in which Keras runs on TensorFlow.

    The worker and its child processes are killed at the end of the block, and end by themselves if this process dies.
    """

    def __init__(self, scratch: Path) -> None:
        """Start the worker, with its temporary files and its output in the folder `scratch`."""
        temporary = scratch / "temporary"
        temporary.mkdir(exist_ok=True)  # exists if the export is repeated with static axes
        self._output_file = scratch / "printed_by_tensorflow.txt"
        with self._output_file.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _WORKER_CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=_worker_environment(temporary),
                start_new_session=True,  # a process group of its own, so that child processes are killed too
            )

    def __enter__(self) -> TensorFlowWorker:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(os, "killpg"):
            # macOS raises PermissionError for a process that has ended.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        kill_process(self._process)

    def run_task(self, task: ExportTask, on_step: ProgressCallback) -> None:
        """Send a task and wait for the reply; raise the error of the worker, or `ExportError` if it crashes."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the worker has ended; its exit is described below
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
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        outcome = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"The process with TensorFlow, which traces the model, {outcome}: {last_line}"


def _worker_environment(temporary: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        # Temporary files of a killed worker are removed with this folder.
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)),
    }
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # JAX or torch has allocated memory of the GPU too
    environment.pop("XLA_FLAGS", None)  # TensorFlow aborts at a flag that is defined only in JAX's XLA
    return environment
