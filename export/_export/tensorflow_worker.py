"""Worker process with the TensorFlow backend: load a saved model and write its bundle.

The worker reads a pickled `ExportTask` from standard input, and writes pickled replies to standard output:
("step", name) for each step, ("log", (logger, level, message)) for each log record, and at the end ("done", None) or
("error", error), where the error is an `UntraceableError` or an `ExportError` that the parent process raises.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import ExportError, UnsupportedModelError, UntraceableError

if TYPE_CHECKING:
    import keras
    import numpy as np

    from .._options import Options
    from .._progress import ProgressCallback
    from .._rounding.reference import Reference
    from .._signature.signature import InputSpec, Signature
    from .custom_objects import ImportPaths


@dataclass(frozen=True)
class ExportTask:
    """Model to export, settings of Keras, and outputs to compare with."""

    folder: Path  # empty; becomes the bundle
    import_paths: ImportPaths  # of custom classes and functions in the model
    floatx: str
    image_data_format: str
    policy: str  # of layers that a subclassed model creates without a dtype policy
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    log_level: int
    reference: Reference  # with the outputs of the other backend
    options: Options  # `file` is the saved model, and `samples` build a subclassed model


class _LogReplies(logging.Handler):
    """Logging handler that sends each record to the parent process."""

    def __init__(self, reply: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._reply = reply

    def emit(self, record: logging.LogRecord) -> None:
        self._reply("log", (record.name, record.levelno, record.getMessage()))


def main() -> None:
    """Run the task from standard input."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the user's modules must not mix with the replies

    def reply(kind: str, content: Any = None) -> None:
        pickle.dump((kind, content), replies)
        replies.flush()

    try:
        task = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        logger = logging.getLogger("keras_attn_export")
        logger.setLevel(task.log_level)
        logger.addHandler(_LogReplies(reply))
        logger.propagate = False  # other handlers would print records, and the parent quotes the last line at a crash
        _run_task(task, lambda name: reply("step", name))
    except (UntraceableError, ExportError) as error:
        reply("error", error)
    except Exception as error:  # noqa: BLE001 - the parent process raises it
        reply("error", _wrap_crash(error))
    else:
        reply("done")


def _exit_with_parent() -> None:
    """Wait until the pipe from the parent process is closed, and kill this process and its child processes."""
    os.read(0, 1)  # `sys.stdin` has a lock, which this thread would hold at the shutdown of the interpreter
    with contextlib.suppress(AttributeError):  # no process groups on Windows
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _wrap_crash(error: Exception) -> ExportError:
    """Return an `ExportError` for an unexpected error, with its traceback as a note."""
    line = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    wrapped = ExportError(f"The process with TensorFlow, which traces the model, failed: {line}")
    wrapped.add_note(traceback.format_exc())
    return wrapped


def _run_task(task: ExportTask, on_step: ProgressCallback) -> None:
    from .._tracing.saved_model_worker import SavedModelRun

    with SavedModelRun() as worker:  # imports TensorFlow in parallel
        on_step("Loading TensorFlow and the model")
        from .export_run import ExportRun
        from .write_contents import write_contents

        signature, reference = rebuild_signature(task, _load_model(task))
        write_contents(ExportRun(task.folder, task.options, on_step, worker), signature, reference)


def _load_model(task: ExportTask) -> keras.Model:
    import keras

    import keras_attn  # noqa: F401 - registers the layers

    from .._signature.keras_messages import shorten_message
    from .custom_objects import import_custom_objects

    keras.config.set_floatx(task.floatx)
    keras.config.set_image_data_format(task.image_data_format)
    keras.config.set_dtype_policy(task.policy)
    objects = import_custom_objects(task.import_paths)
    try:
        return keras.saving.load_model(task.options.file, objects, compile=False, safe_mode=task.options.safe_mode)
    except OSError as error:
        if error.errno is not None:
            raise  # an error of the file system
        raise UnsupportedModelError(f"Keras cannot load the saved model on TensorFlow: {error}") from error
    except Exception as error:  # of any class, from the user's `from_config`, `build` and `call`
        raise UnsupportedModelError(
            f"The model runs on {task.reference.backend}, but cannot be loaded on TensorFlow, where it is traced: "
            f"{shorten_message(error)}"
        ) from error


def rebuild_signature(task: ExportTask, model: keras.Model) -> tuple[Signature, Reference]:
    """Return the signature of the model on TensorFlow, and the task's reference cast to its output dtypes."""
    from .._signature.keras_messages import shorten_message
    from .._signature.signature import build_signature

    reference = task.reference
    try:
        signature = build_signature(model, task.options.samples, task.options.file)
        outputs = signature.run(reference.golden_cases.cases[0].inputs)
    except Exception as error:  # of any class, from the user's layers
        raise UnsupportedModelError(
            f"`{model.name}` runs on {reference.backend}, but not on TensorFlow, where it is traced: "
            f"{shorten_message(error)}"
        ) from error
    names = [spec.name for spec in signature.inputs], signature.outputs
    expected_names = [spec.name for spec in task.inputs], task.outputs
    if names != expected_names:
        raise UnsupportedModelError(
            f"`{model.name}` has inputs and outputs {names} on TensorFlow, where it is traced, but {expected_names} on "
            f"{reference.backend}."
        )
    dtypes = {name: array.dtype for name, array in outputs.items()}
    return replace(signature, inputs=task.inputs), _cast_reference(reference, dtypes)


def _cast_reference(reference: Reference, dtypes: Mapping[str, np.dtype]) -> Reference:
    """Return the reference with its outputs cast to wider dtypes, by output name."""
    from .._format.input_arrays import widen_outputs
    from .._format.names import Case

    golden, outputs = reference.golden_cases, reference.predict_outputs
    return replace(
        reference,
        golden_cases=replace(golden, cases=[widen_outputs(case, dtypes) for case in golden.cases]),
        converted_cases=[widen_outputs(case, dtypes) for case in reference.converted_cases],
        predict_outputs=None if outputs is None else widen_outputs(Case("", {}, outputs), dtypes).outputs,
    )
