"""Splitting, joining and grouping of attention heads: features `B + (T, H D)` and heads `B + (H, T, D)`.

In grouped-query attention G heads of keys and values serve H heads of queries, H / G each.
"""

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
    """Reshape features `B + (T, H D)` to heads `B + (H, T, D)`."""
    *batch, length, size = ops.shape(features)
    return ops.swapaxes(fast_reshape(features, (*batch, length, num_heads, size // num_heads)), -3, -2)


def apply_dense(dense: Any, features: Tensor) -> Tensor:
    """Apply a `Dense` layer of U units to features `B + (T, D)`; return `B + (T, U)`."""
    if type(dense) is keras.layers.Dense and can_skip_layer_call(dense, features):
        return dense.call(features)
    # XLA computes the gradient of the kernel much faster on a CPU if all positions lie on one axis. In a TensorFlow
    # loop it compiles no other form: the transposition of `Tensordot` has a permutation that is not a constant there.
    if keras.backend.backend() != "jax" and not (keras.backend.backend() == "tensorflow" and is_compiled_by_xla()):
        return dense(features)
    *positions, size = ops.shape(features)
    projected = dense(fast_reshape(features, (math.prod(positions), size)))
    return fast_reshape(projected, (*positions, projected.shape[-1]))


def apply_per_head(function: Callable[[Tensor], Tensor], features: Tensor, num_heads: int) -> Tensor:
    """Apply a function, `(..., D)` to `(..., U)`, to each head of `B + (T, H D)`; return `B + (T, H U)`."""
    if num_heads == 1:
        return function(features)
    *axes, size = ops.shape(features)
    mapped = function(fast_reshape(features, (*axes, num_heads, size // num_heads)))
    return fast_reshape(mapped, (*axes, num_heads * mapped.shape[-1]))


def join_heads(heads: Tensor) -> Tensor:
    """Reshape heads `B + (H, T, D)` to features `B + (T, H D)`."""
    *batch, num_heads, length, size = ops.shape(heads)
    return fast_reshape(ops.swapaxes(heads, -3, -2), (*batch, length, num_heads * size))


def repeat_heads(heads: Tensor, repeats: int) -> Tensor:
    """Repeat every head of `B + (G, T, D)`: `B + (G repeats, T, D)`, with copies of a head next to each other."""
    return heads if repeats == 1 else ops.repeat(heads, repeats, axis=-3)


def fold_query_groups(heads: Tensor, num_groups: int) -> Tensor:
    """Concatenate the query heads of a group along the query axis: `B + (H, T, D)` to `B + (G, H/G T, D)`."""
    *batch, num_heads, length, size = ops.shape(heads)
    return fast_reshape(heads, (*batch, num_groups, num_heads // num_groups * length, size))


def unfold_query_groups(rows: Tensor, num_heads: int) -> Tensor:
    """Invert `fold_query_groups`: `B + (G, H/G T, D)` to `B + (H, T, D)`."""
    *batch, num_groups, length, size = ops.shape(rows)
    return fast_reshape(rows, (*batch, num_heads, length // (num_heads // num_groups), size))


def fold_pairwise_groups(pairwise: Tensor | None, num_heads: int, num_groups: int, num_queries: Any) -> Tensor | None:
    """Fold a mask or bias like queries in `fold_query_groups`.

    The input broadcasts to `B + (H, Tq, Tk)`, the result to `B + (G, H/G Tq, Tk)`. Tq is an integer or scalar tensor.
    """
    if pairwise is None or shape_of(pairwise)[-3:-1] in ((), (1,), (1, 1)):
        return pairwise
    while len(pairwise.shape) < 3:
        pairwise = ops.expand_dims(pairwise, 0)
    *batch, _, _, size = ops.shape(pairwise)
    per_head = ops.broadcast_to(pairwise, (*batch, num_heads, num_queries, size))
    return fold_query_groups(per_head, num_groups)
