"""Trace a model of another backend: what `other_backend.py` starts in a fresh process, where Keras is on TensorFlow.

A `Task` comes through standard input. Back go pickled pairs: ("step", its name) each, and in the end ("done", None),
("untraceable", reasons) for an `UntraceableError`, ("error", (class, message, report)) for an `ExportError`, or
("crash", (one line, traceback)) for any other.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import ExportError, UnsupportedModelError, UntraceableError

if TYPE_CHECKING:
    import keras

    from .._model.golden_cases import Cases
    from .._model.reference import Reference
    from .._model.signature import InputSpec
    from .._options import Options
    from .._progress import Progress
    from .._standalone.verify import Case
    from .custom_objects import Places


@dataclass(frozen=True)
class Task:
    """What to export, and the reference it must agree with.

    Attributes:
        folder: The empty folder that becomes the bundle.
        file: The model as a `.keras` file.
        safe_mode: Whether the file may hold no code.
        places: Where the custom classes and functions in it are.
        floatx: Keras's default float type.
        image_data_format: Keras's default order of image axes.
        policy: The dtype policy for layers that a subclass makes without saying theirs.
        samples: What a subclassed model is called with first, else `None`.
        inputs: The inputs of its signature.
        outputs: The names of its outputs.
        golden: The golden cases, with the outputs of the backend.
        backend: Its name.
        float32_clone: As in the parity report.
        converted_cases: As in the reference.
        options: The options of the export.
    """

    folder: Path
    file: Path
    safe_mode: bool
    places: Places
    floatx: str
    image_data_format: str
    policy: str
    samples: Mapping[str, Any] | None
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    golden: Cases
    backend: str
    float32_clone: dict[str, Any] | None
    converted_cases: list[Case]
    options: Options


def main() -> None:
    """Carry out the task that comes through standard input."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the user's modules print must not come between the replies

    def reply(kind: str, content: Any = None) -> None:
        pickle.dump((kind, content), replies)
        replies.flush()

    try:
        task = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_end_with_the_other, daemon=True).start()
        _carry_out(task, lambda name: reply("step", name))
    except UntraceableError as error:
        reply("untraceable", error.reasons)
    except ExportError as error:
        reply("error", (type(error), str(error), getattr(error, "report", None)))
    except Exception as error:  # noqa: BLE001 - the process that waits raises it
        reply("crash", (_one_line(error), traceback.format_exc()))
    else:
        reply("done")


def _end_with_the_other() -> None:
    """Wait until the process that waits is gone, which closes the pipe, and end this one and all that it started."""
    os.read(0, 1)  # not through `sys.stdin`, whose lock would be held when the interpreter shuts down
    with contextlib.suppress(AttributeError):  # no process groups on Windows
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _one_line(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _carry_out(task: Task, step: Progress) -> None:
    from .._tracing.fresh_process import SavedModelRun

    with SavedModelRun() as fresh:  # which imports TensorFlow too, meanwhile
        step("Loading TensorFlow and the model")
        from .contents import write_contents

        write_contents(task.folder, reference_on_tensorflow(task, _loaded(task)), task.options, step, fresh)


def _loaded(task: Task) -> keras.Model:
    import keras

    import keras_attn  # noqa: F401 - registers the layers

    from .._model.keras_messages import first_line
    from .custom_objects import imported

    keras.config.set_floatx(task.floatx)
    keras.config.set_image_data_format(task.image_data_format)
    keras.config.set_dtype_policy(task.policy)
    objects = imported(task.places)
    try:
        return keras.saving.load_model(task.file, objects, compile=False, safe_mode=task.safe_mode)
    except OSError as error:
        if error.errno is not None:
            raise  # the disk, not the model
        raise UnsupportedModelError(f"Keras cannot load on TensorFlow what it saved: {error}") from error
    except Exception as error:
        # the user's own `from_config`, `build` and `call`
        raise UnsupportedModelError(
            f"The model runs on {task.backend}, but cannot be made again on TensorFlow, where it is traced: "
            f"{first_line(error)}"
        ) from error


def reference_on_tensorflow(task: Task, model: keras.Model) -> Reference:
    """Return the task's reference with the model that TensorFlow can trace.

    Raises:
        UnsupportedModelError: The model does not run on TensorFlow, or has other inputs or outputs there.
    """
    from .._model.keras_messages import first_line
    from .._model.reference import Reference, with_weights
    from .._model.signature import model_signature

    try:
        model = with_weights(model, task.file, task.samples)
        signature = model_signature(model, task.samples)
        outputs = signature.call(task.golden.cases[0].inputs)
    except Exception as error:
        # the user's own layers
        raise UnsupportedModelError(
            f"`{model.name}` runs on {task.backend}, but not on TensorFlow, where it is traced: {first_line(error)}"
        ) from error
    here = [spec.name for spec in signature.inputs], signature.outputs
    there = [spec.name for spec in task.inputs], task.outputs
    if here != there:
        raise UnsupportedModelError(
            f"`{model.name}` has inputs and outputs {here} on TensorFlow, where it is traced, but {there} on "
            f"{task.backend}."
        )
    golden = replace(task.golden, cases=_widened(task.golden.cases, outputs))
    converted = _widened(task.converted_cases, outputs)
    signature = replace(signature, inputs=task.inputs)
    return Reference(model, signature, golden, task.backend, task.float32_clone, converted)


def _widened(cases: Sequence[Case], tensors: Mapping[str, Any]) -> list[Case]:
    """Return the cases with outputs in TensorFlow's dtypes where these are wider.

    JAX has 32 bits for what is declared to have 64, unless it is told otherwise.
    """
    import keras
    import numpy as np

    dtypes = {name: np.asarray(keras.ops.convert_to_numpy(tensor)).dtype for name, tensor in tensors.items()}

    def wide(name: str, array: np.ndarray) -> np.ndarray:
        fits = array.dtype.kind == dtypes[name].kind and np.can_cast(array.dtype, dtypes[name])
        return array.astype(dtypes[name]) if fits else array

    return [case._replace(outputs={name: wide(name, array) for name, array in case.outputs.items()}) for case in cases]
