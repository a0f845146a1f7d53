"""Models with a systematic difference: between graph and eager call, or between TensorFlow and another backend.

The limits of the models have different sources: perturbed weights, saturation, long sums, choices, cancellation.
"""

import keras
import numpy as np
from keras import layers, ops

OTHER_BACKEND = keras.backend.backend() != "tensorflow"


@keras.saving.register_keras_serializable("tests")
class Shifted(layers.Layer):
    """Adds `shift` on TensorFlow: in graphs, and in eager calls too if the layer was created on another backend."""

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


def apply_dense(x):
    return layers.Dense(3)(x)


def saturate(x):
    return ops.sigmoid(30 * x)


def average(x):
    return ops.mean(x, 1, keepdims=True)


def cancel_digits(x):
    return (x + 1e4) - 1e4


def normalize(x):
    return layers.LayerNormalization(epsilon=1e-6, beta_initializer="ones")(x[..., :1])


SOURCES = dict(dense=apply_dense, saturated=saturate, long_sum=average, cancelling=cancel_digits, normalized=normalize)


def build_shifted_model(source, shift, length=None):
    """Build the model of a source of limits, with a shift of its output."""
    keras.utils.set_random_seed(0)
    x = keras.Input((length, 6), name="x")
    return keras.Model(x, {"y": Shifted(shift, name="shifted")(SOURCES[source](x))})


def build_choice_model(shift):
    """Build a model whose float output depends on an argmax, which is a tie in some rows of `TIES`."""
    x = keras.Input((3,), name="x")
    token = ops.argmax(x * 0.1 + x * 0.2, -1)
    table = ops.convert_to_tensor(np.float32([[-0.4, 0.2], [0.1, -0.3], [0.3, 0.2]]))
    return keras.Model(x, {"token": token, "y": Shifted(shift, name="shifted")(ops.take(table, token, 0))})


TIED_ROWS = np.float32([[1, 1, 0], [1, 0.5, 0], [0.2, 0.9, 0.9], [0.1, 0, 0.4]])
