"""Models with a systematic difference: between graph and eager call, or between TensorFlow and another backend.

Each has a limit of another source: perturbed weights, saturated functions, long sums, choices, perturbed products.
"""

import keras
import numpy as np
from keras import layers, ops

OTHER_BACKEND = keras.backend.backend() != "tensorflow"


@keras.saving.register_keras_serializable("tests")
class Shifted(layers.Layer):
    """Adds a number on TensorFlow, in a graph alone unless the model was made on another backend."""

    def __init__(self, shift, in_eager_calls=OTHER_BACKEND, **options):
        super().__init__(**options)
        self.shift, self.in_eager_calls = shift, in_eager_calls

    def get_config(self):
        return {**super().get_config(), "shift": self.shift, "in_eager_calls": self.in_eager_calls}

    def call(self, x):
        if OTHER_BACKEND:
            return x + 0.0
        import tensorflow as tf

        return x + (self.shift if self.in_eager_calls or not tf.executing_eagerly() else 0.0)


def dense(x):
    return layers.Dense(3)(x)


def saturated(x):
    return ops.sigmoid(30 * x)


def long_sum(x):
    return ops.mean(x, 1, keepdims=True)


def cancelling(x):
    return (x + 1e4) - 1e4


def normalized(x):
    return layers.LayerNormalization(epsilon=1e-6, beta_initializer="ones")(x[..., :1])


SOURCES = {each.__name__: each for each in (dense, saturated, long_sum, cancelling, normalized)}


def build_shifted_model(source, shift, length=None):
    """Return the model of a source with a shift behind it."""
    keras.utils.set_random_seed(0)
    x = keras.Input((length, 6), name="x")
    return keras.Model(x, {"y": Shifted(shift, name="shifted")(SOURCES[source](x))})


def build_choice_model(shift):
    """Return a model whose float output depends on a choice between equal numbers in some rows of the samples."""
    x = keras.Input((3,), name="x")
    token = ops.argmax(x * 0.1 + x * 0.2, -1)
    table = ops.convert_to_tensor(np.float32([[-0.4, 0.2], [0.1, -0.3], [0.3, 0.2]]))
    return keras.Model(x, {"token": token, "y": Shifted(shift, name="shifted")(ops.take(table, token, 0))})


TIES = np.float32([[1, 1, 0], [1, 0.5, 0], [0.2, 0.9, 0.9], [0.1, 0, 0.4]])
