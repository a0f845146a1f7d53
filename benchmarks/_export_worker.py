"""One export in a process of its own: `python _export_worker.py SPEC.json`, where `export_cost.py` says what is in it.

It imports all that an export imports, makes the model and runs it once; then it exports, and prints a line of JSON with
the seconds that took, and in bytes the highest resident memory of this process, that before the export, and the highest
of a process that it started and waited for.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx  # noqa: F401 - so that no exporter's time has it
import onnxruntime  # noqa: F401
import tensorflow as tf  # noqa: F401
import tf2onnx  # noqa: F401
from keras import layers

from keras_attn_export import export_model
from keras_attn_export._standalone import peak_memory

BYTES = 4  # of a float32
KIB = 1024


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


def main(file: str) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an exporter prints must not be taken for the reply
    spec = json.loads(Path(file).read_text(encoding="utf-8"))
    keras.utils.set_random_seed(0)
    model = MODELS[spec["model"]](spec["weights"])
    model(_zeros(model))
    export = _with_keras if spec["by"] == "keras" else export_model
    before = peak_memory._resident()  # and let the peak start from there
    start = time.perf_counter()
    export(model, Path(spec["folder"]) / "exported")
    seconds = time.perf_counter() - start
    weights = sum(int(np.prod(variable.shape)) * BYTES for variable in model.variables)
    found = {"seconds": seconds, "memory": peak_memory._peak(), "before": before, "weights": weights}
    found["started"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KIB
    replies.write(json.dumps(found) + "\n")


def _with_keras(model: keras.Model, path: Path) -> None:
    model.export(str(path), format="onnx", verbose=False)


def _zeros(model: keras.Model) -> Any:
    (tensor,) = model.inputs
    return np.zeros([size or 2 for size in tensor.shape], tensor.dtype)


if __name__ == "__main__":
    main(sys.argv[1])
