"""An export as a contestant: its time and memory are measured after the imports and after the model is built."""

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx  # noqa: F401 - so that no exporter's time has it
import onnxruntime  # noqa: F401
import tensorflow as tf  # noqa: F401
import tf2onnx  # noqa: F401
from _contestant import Build, Runner
from keras import layers

from keras_attn_export import export_model

BYTES = 4  # of a float32
KIB = 1024


def by_keras(spec: dict[str, Any]) -> Build:
    """An export by Keras's own exporter."""
    return _build(spec["options"], lambda model, path: model.export(str(path), format="onnx", verbose=False))


def by_ours(spec: dict[str, Any]) -> Build:
    """An export by `export_model`, which also checks the file."""
    return _build(spec["options"], export_model)


def _build(options: dict[str, Any], export: Callable[[keras.Model, Path], Any]) -> Build:
    keras.utils.set_random_seed(0)
    model = MODELS[options["model"]](options["weights"])
    (tensor,) = model.inputs
    model(np.zeros([size or 2 for size in tensor.shape], tensor.dtype))

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            export(model, Path(folder) / "exported")

    def facts() -> dict[str, int]:
        """Return the bytes of weights, and the highest memory of a process that this one started and waited for."""
        weights = sum(int(np.prod(variable.shape)) * BYTES for variable in model.variables)
        return {"weights": weights, "started": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KIB}

    return lambda inputs: Runner(run, lambda: [], facts)


def encoder(weights: int) -> keras.Model:
    """Return two blocks of a transformer; about a third of the weights is a table."""
    width = max(int((weights / BYTES / (2 * 12 + 12)) ** 0.5) // 8 * 8, 8)
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = layers.Embedding(12 * width, width)(ids)
    for _ in range(2):
        hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(8, width // 8)(hidden, hidden))
        wide = layers.Dense(4 * width, activation="relu")(hidden)
        hidden = layers.LayerNormalization()(hidden + layers.Dense(width)(wide))
    return keras.Model(ids, hidden)


def convolutions(weights: int) -> keras.Model:
    """Return a stack of convolutions, each with a normalization."""
    filters = max(int((weights / BYTES / (4 * 9)) ** 0.5), 2)
    image = keras.Input((32, 32, 3), name="image")
    hidden = layers.Conv2D(filters, 1)(image)
    for _ in range(4):
        hidden = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(hidden)
        hidden = layers.ReLU()(layers.BatchNormalization()(hidden))
    return keras.Model(image, layers.GlobalAveragePooling2D()(hidden))


def one_layer(weights: int) -> keras.Model:
    """Return a dense layer with about so many bytes of weights."""
    width = max(int((weights / BYTES) ** 0.5), 2)
    vector = keras.Input((width,), name="vector")
    return keras.Model(vector, layers.Dense(width)(vector))


MODELS = {"one layer": one_layer, "encoder": encoder, "convolutions": convolutions}
