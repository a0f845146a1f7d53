"""Gather, top-k and argmax with the same tie-breaking on every backend."""

from typing import Any

import keras
from keras import ops

from .._shapes import dtype_of
from .._types import Tensor


def take(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    """The entries of an axis that an index names, none of it negative."""
    if keras.backend.backend() != "tensorflow":
        return ops.take(x, index, axis=axis)
    import tensorflow as tf  # Keras adds operators that look for negative ones, to each step

    return tf.gather(x, index, axis=axis)


def repeat(x: Tensor, times: int) -> Tensor:
    """Each entry of the first axis so many times."""
    return x if times == 1 else ops.repeat(x, times, axis=0)


def gather(x: Tensor, index: Tensor) -> Tensor:
    """From `(n, M, ...)` the entries of each row that an index `(n, k)` names: `(n, k, ...)`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, index, axis=1, batch_dims=1)
    index = with_rank(index, len(x.shape))
    return ops.take_along_axis(x, ops.broadcast_to(index, (*ops.shape(index)[:2], *ops.shape(x)[2:])), axis=1)


def argmax(x: Tensor) -> Tensor:
    """The place of the largest on the last axis, the first of equal ones. Keras takes 0.0 to be more than -0.0."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.argmax(x, axis=-1, output_type="int32")
    if keras.backend.backend() == "jax":
        import jax.numpy as jnp

        return jnp.argmax(x, axis=-1).astype("int32")
    return ops.argmax(x, axis=-1)


def amax(x: Tensor) -> Tensor:
    """The largest on the last axis. Keras refuses a batch without rows."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reduce_max(x, axis=-1)
    return ops.top_k(x, 1)[0][..., 0]


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest on the last axis in order, of equal ones the first before the others, and their places."""
    if keras.backend.backend() == "torch":  # its `topk` takes equal ones in any order
        places = ops.argsort(-x, axis=-1)[..., :k]
        return ops.take_along_axis(x, places, axis=-1), places
    values, places = ops.top_k(x, k)
    return values, ops.cast(places, "int32")


def where(condition: Tensor, x: Tensor, other: Any) -> Tensor:
    """A tensor where a condition on its first axes holds, another or a number elsewhere."""
    return ops.where(with_rank(condition, len(x.shape)), x, ops.cast(other, dtype_of(x)))


def with_rank(x: Tensor, rank: int) -> Tensor:
    """A tensor with axes of size 1 added at its end."""
    for _ in range(rank - len(x.shape)):
        x = ops.expand_dims(x, -1)
    return x
