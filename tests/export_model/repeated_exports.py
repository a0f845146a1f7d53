"""Small models, exported for `test_same_files.py`: `python repeated_exports.py FOLDER [--reversed]`.

Nobody asks the SavedModels for anything.
"""

import os
import sys
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}

import keras
import numpy as np
from keras import layers

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN, DotProductAttention
from keras_attn_export import export_model
from keras_attn_export._export import export
from keras_attn_export._graphs import external_data
from keras_attn_export._standalone import verify


class Trusted:
    """A SavedModel that gives what Keras does, as far as anybody knows."""

    def begin(self, saved_model, cases, results):
        self._cases = cases

    def outputs(self):
        return [case.outputs for case in verify.load_cases(self._cases)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.first, self.second = layers.Dense(4, name="first"), AdditiveAttention(3, name="second")

    def call(self, x, valid_lens):
        y = self.first(x)
        return self.second(y, y, y, valid_lens)


class Repeated(layers.Layer):
    """A loop of its own with a sum in it."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]), name="kernel")

    def call(self, x):
        def body(step, y):
            return step + 1, keras.ops.tanh(y @ self.kernel) + keras.ops.cumsum(y, axis=1)

        return keras.ops.while_loop(lambda step, y: step < 3, body, (0, x))[1]

    def compute_output_shape(self, shape):
        return shape


def attending():
    x, valid_lens = keras.Input((None, 6), name="x"), keras.Input((), dtype="int32", name="valid_lens")
    y = DotProductAttention(name="attention")(layers.Dense(6, "gelu", name="dense")(x), x, x, valid_lens)
    return keras.Model([x, valid_lens], y, name="attending")


def heads():
    x = keras.Input((None, 8), name="x")
    y = layers.LayerNormalization(name="first_norm")(x + layers.MultiHeadAttention(2, 4, name="heads")(x, x))
    y = layers.Dense(8, name="out")(layers.Dense(16, "relu", name="within")(y))
    return keras.Model(x, layers.LayerNormalization(name="second_norm")(y), name="transformer")


def wide():
    x = keras.Input((32,), name="x")
    return keras.Model(x, layers.Dense(40, name="second")(layers.Dense(33, name="first")(x)), name="wide")


def recurrent():
    x = keras.Input((None, 4), name="x")
    y = layers.Bidirectional(layers.GRU(3, return_sequences=True, name="gru"), name="both")(x)
    return keras.Model(x, layers.LSTM(3, name="lstm")(y), name="recurrent")


def decoder():
    x, memory = keras.Input((None, 3), name="x"), keras.Input((None, 5), name="memory")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    cell = AttentionCell(layers.GRUCell(6, name="gru"), AdditiveAttention(4, name="attention"), name="cell")
    y = AttentionRNN(cell, return_sequences=True, name="decoder")(x, memory, valid_lens)
    return keras.Model([x, memory, valid_lens], y, name="decoding")


def loops():
    x = keras.Input((3, 4), name="x")
    y = Repeated(name="repeated")(layers.SimpleRNN(3, return_sequences=True, name="simple")(x))
    return keras.Model(x, y, name="loops")


def convolutions():
    x = keras.Input((8, 8, 3), name="x")
    y = layers.Activation("relu", name="relu")(
        layers.BatchNormalization(name="norm")(layers.Conv2D(4, 3, padding="same", name="first")(x))
    )
    y = layers.MaxPooling2D(name="pool")(y)
    beside = layers.DepthwiseConv2D(3, padding="same", name="beside")(y)
    y = layers.GlobalAveragePooling2D(name="mean")(layers.Conv2D(4, 3, padding="same", name="second")(y) + beside)
    return keras.Model(x, layers.Dense(3, "softmax", name="classes")(y), name="convolutions")


def nameless():
    keras.backend.clear_session()  # Keras numbers layers in a process
    x = keras.Input((None,), dtype="int32", name="ids")
    y = layers.Dense(8)(layers.Embedding(11, 8, mask_zero=True)(x))
    y = layers.GRU(4, return_sequences=True)(y)
    return keras.Model(x, AdditiveAttention(4)(y, y, y), name="nameless")


SAMPLES = {"x": np.ones((2, 3, 5), "float32"), "valid_lens": np.array([1, 3], "int32")}
EXPORTS = {
    "attending": (attending, {}),
    "portable": (attending, {"lowering": "portable"}),
    "float16": (heads, {"precision": "float16"}),
    "int8": (heads, {"precision": "int8"}),
    "weights apart": (wide, {}),
    "recurrent": (recurrent, {}),
    "decoder": (decoder, {}),
    "loops": (loops, {}),
    "convolutions": (convolutions, {}),
    "subclassed": (Subclassed, {"sample_inputs": SAMPLES}),
    "nameless": (nameless, {}),
}

if __name__ == "__main__":
    export.SavedModelRun = Trusted
    in_one_file, folder, backwards = external_data.LIMIT, Path(sys.argv[1]), sys.argv[2:] == ["--reversed"]
    for name in sorted(EXPORTS, reverse=backwards):
        keras.utils.set_random_seed(1)
        make, options = EXPORTS[name]
        external_data.LIMIT = 0 if name == "weights apart" else in_one_file
        export_model(make(), folder / name, progress=False, **options)
