"""Contestants that export a model; time and memory are measured after imports and after the model is built."""

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx  # noqa: F401 - its import time would count for the first exporter
import onnxruntime  # noqa: F401
import tensorflow as tf  # noqa: F401
import tf2onnx  # noqa: F401
from _contestant import Build, Runner
from keras import layers

from keras_attn_export import export_model

FLOAT32_BYTES = 4
KIB = 1024


def build_keras_export(spec: dict[str, Any]) -> Build:
    """Build an export by Keras's own exporter."""
    return _build_export(spec["options"], lambda model, path: model.export(str(path), format="onnx", verbose=False))


def build_checked_export(spec: dict[str, Any]) -> Build:
    """Build an export by `export_model`, which also checks the file."""
    return _build_export(spec["options"], export_model)


def _build_export(options: dict[str, Any], export: Callable[[keras.Model, Path], Any]) -> Build:
    keras.utils.set_random_seed(0)
    model = MODELS[options["model"]](options["weights"])
    (tensor,) = model.inputs
    model(np.zeros([size or 2 for size in tensor.shape], tensor.dtype))

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            export(model, Path(folder) / "exported")

    def measure_bytes() -> dict[str, int]:
        """Return the bytes of weights, and the peak memory of the largest child process."""
        weights = sum(int(np.prod(variable.shape)) * FLOAT32_BYTES for variable in model.variables)
        return {"weights": weights, "child_memory": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KIB}

    return lambda inputs: Runner(run, lambda: [], measure_bytes)


def build_encoder(weights: int) -> keras.Model:
    """Build two Transformer blocks; about a third of the weights is an embedding table."""
    width = max(int((weights / FLOAT32_BYTES / (2 * 12 + 12)) ** 0.5) // 8 * 8, 8)
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = layers.Embedding(12 * width, width)(ids)
    for _ in range(2):
        hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(8, width // 8)(hidden, hidden))
        feed_forward = layers.Dense(4 * width, activation="relu")(hidden)
        hidden = layers.LayerNormalization()(hidden + layers.Dense(width)(feed_forward))
    return keras.Model(ids, hidden)


def build_convolutions(weights: int) -> keras.Model:
    """Build a stack of convolutions with batch normalization."""
    filters = max(int((weights / FLOAT32_BYTES / (4 * 9)) ** 0.5), 2)
    image = keras.Input((32, 32, 3), name="image")
    hidden = layers.Conv2D(filters, 1)(image)
    for _ in range(4):
        hidden = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(hidden)
        hidden = layers.ReLU()(layers.BatchNormalization()(hidden))
    return keras.Model(image, layers.GlobalAveragePooling2D()(hidden))


def build_one_layer(weights: int) -> keras.Model:
    """Build a dense layer with about `weights` bytes of weights."""
    width = max(int((weights / FLOAT32_BYTES) ** 0.5), 2)
    vector = keras.Input((width,), name="vector")
    return keras.Model(vector, layers.Dense(width)(vector))


MODELS = {"one layer": build_one_layer, "encoder": build_encoder, "convolutions": build_convolutions}
