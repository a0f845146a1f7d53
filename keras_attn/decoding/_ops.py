"""Gather, top-k and argmax with the same tie-breaking on every backend."""

from typing import Any

import keras
from keras import ops

from .._shapes import dtype_of
from .._types import Tensor


def take(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    """Return the entries of `x` at the nonnegative indices `index` (k,) of an axis."""
    if keras.backend.backend() != "tensorflow":
        return ops.take(x, index, axis=axis)
    import tensorflow as tf

    # Not `keras.ops.take`, which adds operators for negative indices to every step.
    return tf.gather(x, index, axis=axis)


def repeat(x: Tensor, times: int) -> Tensor:
    """Repeat each entry `times` times: `(n, ...)` becomes `(n times, ...)`."""
    return x if times == 1 else ops.repeat(x, times, axis=0)


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Return from each row of `x` (n, M, ...) the entries at `index` (n, k): `(n, k, ...)`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, index, axis=1, batch_dims=1)
    index = expand_rank(index, len(x.shape))
    return ops.take_along_axis(x, ops.broadcast_to(index, (*ops.shape(index)[:2], *ops.shape(x)[2:])), axis=1)


def argmax(x: Tensor) -> Tensor:
    """Return the index of the maximum on the last axis, int32; the first of equal maxima."""
    # `keras.ops.argmax` treats 0.0 as larger than -0.0 on TensorFlow and JAX.
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.argmax(x, axis=-1, output_type="int32")
    if keras.backend.backend() == "jax":
        import jax.numpy as jnp

        return jnp.argmax(x, axis=-1).astype("int32")
    return ops.argmax(x, axis=-1)


def amax(x: Tensor) -> Tensor:
    """Return the maximum on the last axis; also for a batch without rows, which `keras.ops.max` rejects."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.reduce_max(x, axis=-1)
    return ops.top_k(x, 1)[0][..., 0]


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values on the last axis in order, and their indices; equal values by their index."""
    # `torch.topk` returns equal values in any order; `keras.ops.argsort` is stable.
    if keras.backend.backend() == "torch":
        indices = ops.argsort(-x, axis=-1)[..., :k]
        return ops.take_along_axis(x, indices, axis=-1), indices
    values, indices = ops.top_k(x, k)
    return values, ops.cast(indices, "int32")


def where(condition: Tensor, x: Tensor, other: Any) -> Tensor:
    """Return `x` if a condition on its first axes is True, else `other`: a tensor like `x` or a number."""
    return ops.where(expand_rank(condition, len(x.shape)), x, ops.cast(other, dtype_of(x)))


def expand_rank(x: Tensor, rank: int) -> Tensor:
    """Append axes of size 1 to a tensor until it has `rank` axes."""
    for _ in range(rank - len(x.shape)):
        x = ops.expand_dims(x, -1)
    return x
