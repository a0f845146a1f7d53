"""Models and layers of other_backend_worker.py, in a module from which the TensorFlow process can import them."""

import os
import sys

import keras
import numpy as np
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention

B, Tq, Tk, Ti, Dq, Dk, De, U, C = 3, 4, 7, 6, 5, 8, 9, 10, 2
WORDS = 11
OTHER_BACKEND = keras.backend.backend() != "tensorflow"


def build_trained_model():
    """Build a model with two kinds of scores and three kinds of masks, trained for a few steps."""
    queries, keys = keras.Input((None, Dq), name="queries"), keras.Input((None, Dk), name="keys")
    lens = keras.Input((), dtype="int64", name="valid_lens")
    ids = keras.Input((None,), dtype="int32", name="ids")
    mask = keras.Input((None, None), dtype="bool", name="keep")
    words = layers.Embedding(WORDS, De, mask_zero=True)(ids)
    context = AdditiveAttention(U, name="additive")(queries, keys, keys, lens, attention_mask=mask)
    context, weights = DotProductAttention(name="dot_product")(
        layers.Dense(De)(context), words, words, return_attention_scores=True
    )
    classes = layers.Dense(C, activation="softmax", name="classes")(context)
    inputs = [queries, keys, lens, ids, mask]
    trained = keras.Model(inputs, classes)
    trained.compile(keras.optimizers.Adam(0.1), "mse")
    targets = np.random.default_rng(1).random((B, Tq, C), "float32")
    trained.fit(list(draw_trained_model_inputs().values()), targets, epochs=3, verbose=0)
    return keras.Model(inputs, {"classes": classes, "weights": weights, "doubled_lens": 2 * lens}, name="trained")


def draw_trained_model_inputs():
    """Draw inputs of `build_trained_model`, with padding in each of its masks."""
    rng = np.random.default_rng(0)
    return {
        "queries": rng.standard_normal((B, Tq, Dq), "float32"),
        "keys": rng.standard_normal((B, Tk, Dk), "float32"),
        "valid_lens": np.array([Tk, 0, 3]),
        "ids": np.array([[1, 2, 3, 4, 5, 6], [7, 8, 0, 0, 0, 0], [10, 9, 1, 0, 0, 0]], "int32"),
        "keep": rng.random((B, Tq, Tk)) < 0.7,
    }


def build_layer_model(layer):
    x = keras.Input((Dq,), name="x")
    return keras.Model(x, layers.Dense(C, name="y")(layer(x)))


@keras.saving.register_keras_serializable("tests")
class Running(layers.Layer):
    """Cumulative sums, in a Python loop that TensorFlow cannot trace for an unknown number of steps."""

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)

    def call(self, x):
        return ops.stack([ops.sum(x[:, : step + 1], 1) for step in range(x.shape[1])], 1)


def build_while_loop_model():
    x = keras.Input((None, Dq), name="x")
    return keras.Model(x, Running(name="sums")(x))


def build_augmentation_model():
    """Build a model with statistics after `CenterCrop`, which sets training mode if `training` is missing."""
    x = keras.Input((4, 4, 2), name="x")
    return keras.Model(x, layers.Flatten()(layers.BatchNormalization()(layers.CenterCrop(2, 2)(x))))


class OtherBackendOnly(layers.Layer):
    def call(self, x):
        if not OTHER_BACKEND:
            raise ValueError("not made for TensorFlow")
        return x * 2


@keras.saving.register_keras_serializable("tests")
class Fatal(layers.Layer):
    """A layer that ends the process on TensorFlow, without an exception."""

    def call(self, x):
        if not OTHER_BACKEND:
            print("the last words", file=sys.stderr, flush=True)
            os._exit(3)
        return x * 2


@keras.saving.register_keras_serializable("tests")
class Scaled(keras.Model):
    """A subclassed model with a number and a registered function as options; its inputs are a tensor and a mapping."""

    def __init__(self, units, activation="halved", **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.attention = AdditiveAttention(units)
        self.head = layers.Dense(C, activation=activation)

    def call(self, queries, memory, training=None):
        context = self.attention(queries, memory["keys"], memory["keys"], memory["valid_lens"], training=training)
        return {"scores": self.head(context), "total": ops.sum(context, axis=-1)}

    def get_config(self):
        return {**super().get_config(), "units": self.units, "activation": keras.activations.serialize(halved)}

    @classmethod
    def from_config(cls, config):
        config["activation"] = keras.activations.deserialize(config["activation"])
        return cls(**config)


@keras.saving.register_keras_serializable("tests")
def halved(x):
    return x / 2


def build_halving_model():
    """Build a `Scaled` model, which halves its scores, and sample inputs."""
    rng = np.random.default_rng(2)
    memory = {"keys": rng.standard_normal((B, Tk, Dk), "float32"), "valid_lens": np.array([2, Tk, 4], "int32")}
    return Scaled(U, halved), {"queries": rng.standard_normal((B, Tq, Dq), "float32"), "memory": memory}
