"""Validation and loading of the model argument: a Keras model or a `.keras` file."""

from __future__ import annotations

import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from .._dependencies import require_extra
from .._errors import UnsupportedModelError
from .._options import Options

if TYPE_CHECKING:
    import keras


def check_model(model: object) -> None:
    """Check the model argument without importing TensorFlow.

    Raises:
        UnsupportedModelError: If it is neither a Keras model nor the path of a `.keras` file.
    """
    if isinstance(model, str | Path):
        if reason := _find_file_error(Path(model)):
            raise UnsupportedModelError(reason)
    elif "keras" not in sys.modules or not isinstance(model, sys.modules["keras"].Model):
        raise UnsupportedModelError(
            f"`model` must be a keras.Model or the path of a `.keras` file. Received: {_describe_argument(model)}"
        )


def _find_file_error(file: Path) -> str | None:
    """Return the reason why a file is no `.keras` file, with advice, or `None` if it is one."""
    if file.is_dir():
        return f"{file} is a folder, such as a SavedModel. Save the Keras model itself with `model.save('x.keras')`."
    if not file.is_file():
        return f"There is no model file at {file}."
    if file.name.endswith(".weights.h5"):
        return f"{file} holds only weights. Build the model, call `model.load_weights`, and export the model."
    if file.suffix in (".h5", ".hdf5"):
        advice = "Load it with `keras.saving.load_model`, and save the model with `model.save('x.keras')`."
        return f"{file} is not a `.keras` file. {advice}"
    if file.suffix != ".keras":
        return f"{file} is not a `.keras` file. Save the model with `model.save('x.keras')`."
    if not zipfile.is_zipfile(file):
        return f"{file} is not a `.keras` file: it is not a zip archive. Save the model with `model.save('x.keras')`."
    return None


def _describe_argument(model: object) -> str:
    """Describe an argument that is no model, with advice."""
    if isinstance(model, type):
        return f"the class {model.__name__}. Pass an instance of it."
    cls = type(model)
    if "keras" in sys.modules and isinstance(model, sys.modules["keras"].layers.Layer):
        return f"{cls.__name__}, a layer. Call it on `keras.Input`, and pass `keras.Model(inputs, outputs)`."
    if cls.__module__ == "builtins":
        return f"{cls.__name__}."
    return f"{cls.__module__}.{cls.__qualname__}. Rebuild a model of another library, or of Keras 2, in Keras 3 first."


def load_model(model: keras.Model | str | Path, options: Options) -> keras.Model:
    """Load a model from a `.keras` file, or return a Keras model unchanged; imports Keras and its backend.

    Raises:
        UnsupportedModelError: If Keras cannot load the file.
    """
    with require_extra("export", "Loading a Keras model"):
        import keras

        import keras_attn  # noqa: F401 - registers the layers, which Keras needs to load files that contain them

    from .keras_messages import shorten_message

    if isinstance(model, keras.Model):
        return model
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Model .* had a build config")  # it is built from samples later
            return keras.saving.load_model(model, compile=False, safe_mode=options.safe_mode)
    except Exception as error:
        # The type depends on the fault: a malformed file, an unknown or unsafe layer.
        raise UnsupportedModelError(f"Keras cannot load {model}: {shorten_message(error)}") from error
