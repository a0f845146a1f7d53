"""Split, join and group attention heads: `B + (T, H D)` and `B + (H, T, D)`."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .._keras.private_api import can_skip_layer_call, is_compiled_by_xla
from .._shapes import fast_reshape, shape_of
from .._types import Tensor

ROLES = ("queries", "keys", "values")


def split_heads(features: Tensor, num_heads: int) -> Tensor:
    """Features `B + (T, H D)` as heads `B + (H, T, D)`."""
    *batch, length, size = ops.shape(features)
    return ops.swapaxes(fast_reshape(features, (*batch, length, num_heads, size // num_heads)), -3, -2)


def apply_dense(dense: Any, features: Tensor) -> Tensor:
    """A `Dense` layer on features `B + (T, D)`."""
    if type(dense) is keras.layers.Dense and can_skip_layer_call(dense, features):
        return dense.call(features)
    # Where positions lie on one axis XLA takes the gradient of the kernel much faster on a CPU, and on TensorFlow in a
    # loop at all: `Tensordot` transposes there by what is no constant to it.
    if keras.backend.backend() != "jax" and not (keras.backend.backend() == "tensorflow" and is_compiled_by_xla()):
        return dense(features)
    *positions, size = ops.shape(features)
    projected = dense(fast_reshape(features, (math.prod(positions), size)))
    return fast_reshape(projected, (*positions, projected.shape[-1]))


def apply_per_head(function: Callable[[Tensor], Tensor], features: Tensor, num_heads: int) -> Tensor:
    """What a function of features `B + (T, D)`, of each position alone, gives in each head of `B + (T, H D)`."""
    if num_heads == 1:
        return function(features)
    *axes, size = ops.shape(features)
    mapped = function(fast_reshape(features, (*axes, num_heads, size // num_heads)))
    return fast_reshape(mapped, (*axes, num_heads * mapped.shape[-1]))


def join_heads(heads: Tensor) -> Tensor:
    """Heads `B + (H, T, D)` as features `B + (T, H D)`."""
    *batch, num_heads, length, size = ops.shape(heads)
    return fast_reshape(ops.swapaxes(heads, -3, -2), (*batch, length, num_heads * size))


def repeat_heads(heads: Tensor, repeats: int) -> Tensor:
    """Heads `B + (G, T, D)`, each as often as given, side by side."""
    return heads if repeats == 1 else ops.repeat(heads, repeats, axis=-3)


def fold_query_groups(heads: Tensor, num_groups: int) -> Tensor:
    """Heads `B + (H, T, D)`, those of a group one behind the other in its rows: `B + (G, H / G T, D)`."""
    *batch, num_heads, length, size = ops.shape(heads)
    return fast_reshape(heads, (*batch, num_groups, num_heads // num_groups * length, size))


def unfold_query_groups(rows: Tensor, num_heads: int) -> Tensor:
    """The reverse of `rows_of_groups`."""
    *batch, num_groups, length, size = ops.shape(rows)
    return fast_reshape(rows, (*batch, num_heads, length // (num_heads // num_groups), size))


def fold_pairwise_groups(pairwise: Tensor | None, num_heads: int, num_groups: int, num_queries: Any) -> Tensor | None:
    """What broadcasts to scores `B + (H, Tq, Tk)` as what does to those of `rows_of_groups`."""
    if pairwise is None or shape_of(pairwise)[-3:-1] in ((), (1,), (1, 1)):
        return pairwise
    while len(pairwise.shape) < 3:
        pairwise = ops.expand_dims(pairwise, 0)
    *batch, _, _, size = ops.shape(pairwise)
    per_head = ops.broadcast_to(pairwise, (*batch, num_heads, num_queries, size))
    return fold_query_groups(per_head, num_groups)
