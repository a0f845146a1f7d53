"""Write the SavedModel, and trace its serving function."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from .._errors import UnsupportedModelError
from .._format.manifest import SERVING_SIGNATURE
from .._format.names import Arrays
from .._private_api.keras_internals import disable_default_signature, refuse_dynamic_scans, track_once
from .._private_api.tensorflow_internals import sort_variables, write_reproducible_uuid
from .._signature.keras_messages import shorten_message
from .._signature.signature import Signature
from .._signature.tensorflow_graph import build_endpoint, build_tensor_specs, trace_caller, trace_runner
from .time_distributed import merge_steps_into_batch


def write_saved_model(signature: Signature, folder: Path) -> Any:
    """Write a model as a SavedModel whose `serving_default` has the signature's input and output names.

    Returns:
        The concrete function behind `serving_default`.

    Raises:
        UnsupportedModelError: If TensorFlow cannot trace the model.
    """
    archive = keras.export.ExportArchive()
    track_once(archive, signature.model)
    with _trace_as_exported(signature):
        serve = archive.add_endpoint(
            SERVING_SIGNATURE, build_endpoint(signature), input_signature=[build_tensor_specs(signature.inputs)]
        )
        sort_variables(serve.get_concrete_function())
        with disable_default_signature():
            archive.write_out(str(folder), verbose=False)
        write_reproducible_uuid(folder / "fingerprint.pb")
        return trace_caller(serve, signature)


def trace_function(signature: Signature, trace_context: Callable[[], Any]) -> Any:
    """Return the concrete function of `serving_default`, traced within the context that `trace_context` returns.

    Raises:
        UnsupportedModelError: If TensorFlow cannot trace the model.
    """
    with _trace_as_exported(signature):
        specs = [build_tensor_specs(signature.inputs)]
        serve = tf.function(build_endpoint(signature, trace_context), input_signature=specs, autograph=False)
        return trace_caller(serve, signature)


@contextlib.contextmanager
def _trace_as_exported(signature: Signature) -> Iterator[None]:
    """Apply the patches of an export while a model is traced, and name the layer in errors."""
    try:
        with merge_steps_into_batch(signature.layers), refuse_dynamic_scans():
            yield
    except OSError:
        raise  # a fault of the disk, not of the model
    except Exception as error:
        # Code of the user's own layers may raise any exception on symbolic tensors.
        layers = _name_failing_layers(signature, error)
        raise UnsupportedModelError(f"{layers} cannot be traced into a graph: {shorten_message(error)}") from error


def build_traced_run(signature: Signature) -> Callable[[Arrays], Arrays]:
    """Trace a model as for the export, and return a function that runs its graph."""
    with merge_steps_into_batch(signature.layers), refuse_dynamic_scans():
        return trace_runner(signature)


def extract_trace_error(error: Exception) -> str:
    """Return TensorFlow's message about a failed trace, or about a failed run of the graph."""
    # The message of a failed run stands before "[[{{node NAME}}]]", and is not the first line. The advice at its end
    # is about code inside `tf.function`, not about layers.
    run_error = re.search(r"(.+)\n\s*\[\[\{\{node ", str(error))
    message = run_error[1].strip() if run_error else shorten_message(error)
    return message.partition(" You can attempt the following resolutions")[0]


def _name_failing_layers(signature: Signature, error: Exception) -> str:
    """Return the layers of the class that Keras was calling when the error was raised, for a message."""
    class_names = re.findall(r"Exception encountered when calling (\w+)\.call", str(error))
    names = [layer.name for layer in signature.layers if class_names and type(layer).__name__ == class_names[-1]]
    if not names:
        return f"Model `{signature.model.name}`"
    return f"Layer {' or '.join(f'`{name}`' for name in names)} ({class_names[-1]})"
