"""All that is used of Keras without being public there, in one place."""

from keras.src.backend import in_symbolic_scope, set_keras_mask

__all__ = ["in_symbolic_scope", "set_keras_mask"]
