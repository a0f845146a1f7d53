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
from .._private_api.keras_internals import scans_of_known_length, track_once, without_default_signature
from .._private_api.tensorflow_internals import put_variables_in_order, write_same_uuid
from .._signature.keras_messages import first_line
from .._signature.signature import Signature
from .._signature.tensorflow_graph import called_from_outside, endpoint, graph_run, specs_of
from .time_distributed import steps_as_rows


def write_saved_model(signature: Signature, folder: Path) -> Any:
    """Write a model as a SavedModel whose `serving_default` has the signature's input and output names.

    Returns:
        The concrete function behind `serving_default`.

    Raises:
        UnsupportedModelError: TensorFlow cannot trace the model: a layer does what no graph can hold.
    """
    archive = keras.export.ExportArchive()
    track_once(archive, signature.model)
    with _tracing(signature):
        serve = archive.add_endpoint(
            SERVING_SIGNATURE, endpoint(signature), input_signature=[specs_of(signature.inputs)]
        )
        put_variables_in_order(serve.get_concrete_function())
        with without_default_signature():
            archive.write_out(str(folder), verbose=False)
        write_same_uuid(folder / "fingerprint.pb")
        return called_from_outside(serve, signature)


def traced_function(signature: Signature, tracing: Callable[[], Any]) -> Any:
    """Return the concrete function that would be behind `serving_default`, traced in a context.

    Args:
        signature: The model.
        tracing: Gives the context.

    Raises:
        UnsupportedModelError: As for `write_saved_model`.
    """
    with _tracing(signature):
        specs = [specs_of(signature.inputs)]
        serve = tf.function(endpoint(signature, tracing), input_signature=specs, autograph=False)
        return called_from_outside(serve, signature)


@contextlib.contextmanager
def _tracing(signature: Signature) -> Iterator[None]:
    """Trace a model as it is exported, and name the layer that cannot be."""
    try:
        with steps_as_rows(signature.layers), scans_of_known_length():
            yield
    except OSError:
        raise  # the disk, not the model
    except Exception as error:
        # whatever the code of the user's own layers raises on symbolic tensors
        layers = _failing_layers(signature, error)
        raise UnsupportedModelError(f"{layers} cannot be traced into a graph: {first_line(error)}") from error


def traced_run(signature: Signature) -> Callable[[Arrays], Arrays]:
    """Trace a model as it is exported, and return what runs its graph."""
    with steps_as_rows(signature.layers), scans_of_known_length():
        return graph_run(signature)


def said_against(error: Exception) -> str:
    """Return what TensorFlow says where a trace, or a run of it, fails."""
    ran = re.search(r"(.+)\n\s*\[\[\{\{node ", str(error))  # where a graph runs, the message is not the first line
    said = ran[1].strip() if ran else first_line(error)
    return said.partition(" You can attempt the following resolutions")[0]  # for code of `tf.function`, not of layers


def _failing_layers(signature: Signature, error: Exception) -> str:
    """Name the layers of the class that Keras says it was calling."""
    called = re.findall(r"Exception encountered when calling (\w+)\.call", str(error))
    names = [layer.name for layer in signature.layers if called and type(layer).__name__ == called[-1]]
    if not names:
        return f"Model `{signature.model.name}`"
    return f"Layer {' or '.join(f'`{name}`' for name in names)} ({called[-1]})"
