"""Operations in the form that costs least in a loop, and that breaks ties alike on every backend."""

import keras
from keras import ops

from .._tensors import Tensor


def take(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    """The entries of an axis that an index names, none of it negative."""
    if keras.backend.backend() != "tensorflow":
        return ops.take(x, index, axis=axis)
    import tensorflow as tf  # Keras adds operators that look for negative ones, to each step

    return tf.gather(x, index, axis=axis)


def first_largest(x: Tensor) -> Tensor:
    """The place of the largest on the last axis, the first of equal ones. Keras takes 0.0 to be more than -0.0."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.argmax(x, axis=-1, output_type="int32")
    if keras.backend.backend() == "jax":
        import jax.numpy as jnp

        return jnp.argmax(x, axis=-1).astype("int32")
    return ops.argmax(x, axis=-1)


def largest(x: Tensor) -> Tensor:
    """The largest on the last axis. Keras refuses a batch without rows."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reduce_max(x, axis=-1)
    return ops.top_k(x, 1)[0][..., 0]


def take_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """From `(n, M, ...)` the entries of each row that an index `(n, k)` names: `(n, k, ...)`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, index, axis=1, batch_dims=1)
    for _ in range(len(x.shape) - 2):
        index = ops.expand_dims(index, -1)
    return ops.take_along_axis(x, ops.broadcast_to(index, (*ops.shape(index)[:2], *ops.shape(x)[2:])), axis=1)


def largest_first(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest on the last axis in order, of equal ones the first before the others, and their places."""
    if keras.backend.backend() == "torch":  # its `topk` takes equal ones in any order
        places = ops.argsort(-x, axis=-1)[..., :count]
        return ops.take_along_axis(x, places, axis=-1), places
    values, places = ops.top_k(x, count)
    return values, ops.cast(places, "int32")
