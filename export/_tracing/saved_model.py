"""Write the SavedModel, and run its cases in a fresh process that cannot import this package."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._errors import ExportError, UnsupportedModelError
from .._internals.keras_internals import layers_of
from .._model.keras_messages import first_line
from .._model.signature import InputSpec, Signature
from .._standalone import verify
from .._standalone.verify import Arrays, load_cases

ENDPOINT = "serving_default"


def write_saved_model(
    model: keras.Model, signature: Signature, folder: Path, tracing: Callable[[], Any] = contextlib.nullcontext
) -> None:
    """Write `model` as a SavedModel whose `serving_default` has the signature's input and output names.

    Args:
        model: The model.
        signature: Its signature.
        folder: The folder to write.
        tracing: Gives the context in which the model is traced.

    Raises:
        UnsupportedModelError: TensorFlow cannot trace the model: a layer does what no graph can hold.
    """
    archive = keras.export.ExportArchive()
    archive.track(model)
    try:
        archive.add_endpoint(ENDPOINT, _endpoint(signature, tracing), input_signature=[_specs(signature.inputs)])
        archive.write_out(str(folder), verbose=False)
    except OSError:
        raise  # the disk, not the model
    except Exception as error:
        # whatever the code of the user's own layers raises on symbolic tensors
        layers = _failing_layers(model, error)
        raise UnsupportedModelError(f"{layers} cannot be traced into a graph: {first_line(error)}") from error


def traced_outputs(
    signature: Signature, specs: Iterable[InputSpec], inputs: Arrays
) -> tuple[dict[str, np.ndarray], str | None]:
    """Trace a model with inputs of such shapes, and return its outputs, or none and what TensorFlow says against it."""
    function = tf.function(_endpoint(signature), input_signature=[_specs(specs)], autograph=False)  # as Keras has it
    try:
        traced = function.get_concrete_function()  # to call `function` counts as a trace too many, of which it warns
        outputs = traced({name: tf.constant(array) for name, array in inputs.items()})
    except Exception as error:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
        ran = re.search(r"(.+)\n\s*\[\[\{\{node ", str(error))  # where a graph runs, the message is not the first line
        return {}, ran[1].strip() if ran else first_line(error)
    return {name: tensor.numpy() for name, tensor in outputs.items()}, None


def _endpoint(
    signature: Signature, tracing: Callable[[], Any] = contextlib.nullcontext
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def serve(inputs: Mapping[str, Any]) -> dict[str, Any]:
        with tracing():
            # identity: an input handed straight through would otherwise be no output of its own
            return {name: tf.identity(tensor) for name, tensor in signature.call(inputs).items()}

    return serve


def _specs(inputs: Iterable[InputSpec]) -> dict[str, tf.TensorSpec]:
    return {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in inputs}


def _failing_layers(model: keras.Model, error: Exception) -> str:
    """Name the layers of the class that Keras says it was calling."""
    called = re.findall(r"Exception encountered when calling (\w+)\.call", str(error))
    names = [layer.name for layer in layers_of(model) if called and type(layer).__name__ == called[-1]]
    return f"Layer {' or '.join(f'`{name}`' for name in names)} ({called[-1]})" if names else f"Model `{model.name}`"


class SavedModelRun:
    """A fresh Python process that loads a SavedModel and runs golden cases through it.

    The process has TensorFlow, but `keras` and `keras_attn` cannot be imported there: the SavedModel must stand alone.
    It starts at once and works while the caller does something else; `outputs` waits for it.
    """

    def __init__(self, saved_model: Path, cases: Path, results: Path) -> None:
        """Start the process. `results` is where it writes its outputs, as cases."""
        script = Path(verify.__file__).with_name("saved_model_run.py")  # which imports nothing of this package
        self._results = results
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(saved_model), str(cases), str(results)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> SavedModelRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # does nothing to a process that has ended
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def outputs(self) -> list[Arrays]:
        """Return the outputs of every case, in order.

        Raises:
            ExportError: The SavedModel could not be loaded or run.
        """
        _, errors = self._process.communicate()
        if self._process.returncode != 0:
            last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
            raise ExportError(f"The SavedModel was written but does not run in a fresh process: {last}")
        return [case.outputs for case in load_cases(self._results)]
