"""The model that a caller names: one of Keras's, or a file of one."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

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
        file = Path(model)
        if not file.is_file():
            raise UnsupportedModelError(f"There is no model file at {file}.")
        if file.suffix != ".keras":
            raise UnsupportedModelError(f"{file} is not a `.keras` file. Save the model with `model.save('x.keras')`.")
    elif "keras" not in sys.modules or not isinstance(model, sys.modules["keras"].Model):
        received = type(model).__name__
        raise UnsupportedModelError(
            f"`model` must be a keras.Model or the path of a `.keras` file. Received: {received}."
        )


def loaded_model(model: keras.Model | str | Path, options: Options) -> keras.Model:
    """Return the model; Keras and its backend are loaded now.

    Args:
        model: A model, or the path of a `.keras` file.
        options: Whether a file may hold code.

    Raises:
        UnsupportedModelError: Keras cannot load the file.
    """
    import keras

    import keras_attn  # noqa: F401 - registers the layers, so that files which hold them load

    from .._model.keras_messages import first_line

    if isinstance(model, keras.Model):
        return model
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Model .* had a build config")  # it is built from the samples
            return keras.saving.load_model(model, compile=False, safe_mode=options.safe_mode)
    except Exception as error:
        # whatever is wrong with a stranger's file: zip, JSON, HDF5, an unknown or unsafe layer
        raise UnsupportedModelError(f"Keras cannot load {model}: {first_line(error)}") from error
