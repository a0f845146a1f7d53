"""Validate and load the model argument: a Keras model or a `.keras` file."""

from __future__ import annotations

import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from .._dependencies import needing
from .._errors import UnsupportedModelError
from .._options import Options

if TYPE_CHECKING:
    import keras


def check_model(model: object) -> None:
    """Refuse what is no model without loading TensorFlow.

    Raises:
        UnsupportedModelError: It is neither a Keras model nor the path of a `.keras` file.
    """
    if isinstance(model, str | Path):
        if said := _unfit_file(Path(model)):
            raise UnsupportedModelError(said)
    elif "keras" not in sys.modules or not isinstance(model, sys.modules["keras"].Model):
        raise UnsupportedModelError(
            f"`model` must be a keras.Model or the path of a `.keras` file. Received: {_received(model)}"
        )


def _unfit_file(file: Path) -> str | None:
    """Return why this is not the file of a model, and what to do."""
    if file.is_dir():
        return f"{file} is a folder, such as a SavedModel. Save the Keras model itself with `model.save('x.keras')`."
    if not file.is_file():
        return f"There is no model file at {file}."
    if file.name.endswith(".weights.h5"):
        return f"{file} holds weights alone. Build the model, call `model.load_weights`, and export the model."
    if file.suffix in (".h5", ".hdf5"):
        how = "Load it with `keras.saving.load_model`, and save the model with `model.save('x.keras')`."
        return f"{file} is not a `.keras` file. {how}"
    if file.suffix != ".keras":
        return f"{file} is not a `.keras` file. Save the model with `model.save('x.keras')`."
    if not zipfile.is_zipfile(file):
        return f"{file} is not a `.keras` file: it is no zip archive. Save the model with `model.save('x.keras')`."
    return None


def _received(model: object) -> str:
    """Return what was passed in the place of a model, and what to do."""
    if isinstance(model, type):
        return f"the class {model.__name__}. Pass a model made of it."
    kind = type(model)
    if "keras" in sys.modules and isinstance(model, sys.modules["keras"].layers.Layer):
        return f"{kind.__name__}, a layer. Call it on `keras.Input`, and pass `keras.Model(inputs, outputs)`."
    if kind.__module__ == "builtins":
        return f"{kind.__name__}."
    return f"{kind.__module__}.{kind.__qualname__}. Build a model of another library, or of Keras 2, in Keras 3 first."


def loaded_model(model: keras.Model | str | Path, options: Options) -> keras.Model:
    """Return the model; Keras and its backend are loaded now.

    Args:
        model: A model, or the path of a `.keras` file.
        options: Whether a file may hold code.

    Raises:
        UnsupportedModelError: Keras cannot load the file.
    """
    with needing("export", "Loading a Keras model"):
        import keras

        import keras_attn  # noqa: F401 - registers the layers, so that files which hold them load

    from .keras_messages import first_line

    if isinstance(model, keras.Model):
        return model
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Model .* had a build config")  # it is built from the samples
            return keras.saving.load_model(model, compile=False, safe_mode=options.safe_mode)
    except Exception as error:
        # whatever is wrong with a stranger's file: zip, JSON, HDF5, an unknown or unsafe layer
        raise UnsupportedModelError(f"Keras cannot load {model}: {first_line(error)}") from error
