"""Heads as one more batch axis: `B + (T, H D)` and `B + (H, T, D)`, and masks that go with them."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from ._types import Masks, Tensor


class Seen(NamedTuple):
    """Booleans: queries `B + (Tq,)` that see a key in some head, and keys `B + (Tk,)` that some query sees."""

    queries: Tensor
    keys: Tensor


def split_heads(features: Tensor, num_heads: int) -> Tensor:
    """Features `B + (T, H D)` as heads `B + (H, T, D)`."""
    *batch, length, size = ops.shape(features)
    return ops.swapaxes(ops.reshape(features, (*batch, length, num_heads, size // num_heads)), -3, -2)


def project(dense: Any, features: Tensor) -> Tensor:
    """A `Dense` layer on features `B + (T, D)`."""
    if keras.backend.backend() != "jax":
        return dense(features)
    # XLA on a CPU takes the gradient of the kernel over all positions much faster where they lie on one axis.
    *positions, size = ops.shape(features)
    projected = dense(ops.reshape(features, (math.prod(positions), size)))
    return ops.reshape(projected, (*positions, projected.shape[-1]))


def join_heads(heads: Tensor) -> Tensor:
    """Heads `B + (H, T, D)` as features `B + (T, H D)`."""
    *batch, num_heads, length, size = ops.shape(heads)
    return ops.reshape(ops.swapaxes(heads, -3, -2), (*batch, length, num_heads * size))


def repeat_heads(heads: Tensor, times: int) -> Tensor:
    """Heads `B + (G, T, D)`, each as often as given, side by side."""
    return heads if times == 1 else ops.repeat(heads, times, axis=-3)


def masks_over_heads(masks: Masks, num_heads: int, rank: int) -> Masks:
    """Masks for queries `B + (T, D)` of a rank as masks for heads: the same for all, unless they have that axis."""
    heads_axis = rank - 2

    def repeated(mask: Tensor | None) -> Tensor | None:
        return None if mask is None else ops.repeat(ops.expand_dims(mask, heads_axis), num_heads, axis=heads_axis)

    pairs = masks.attention_mask
    if pairs is not None and 2 < len(pairs.shape) <= rank:
        pairs = ops.expand_dims(pairs, -3)
    return Masks(
        repeated(masks.valid_lens),
        pairs,
        repeated(masks.queries_mask),
        repeated(masks.keys_mask),
        repeated(masks.values_mask),
    )


def seen_by_heads(mask: Tensor, rank: int) -> Seen:
    """Which queries and keys take part in any head, by a mask that broadcasts to scores `B + (H, Tq, Tk)` of a rank."""
    while len(mask.shape) < rank:
        mask = ops.expand_dims(mask, 0)
    in_some_head = ops.any(mask, axis=-3)
    return Seen(ops.any(in_some_head, axis=-1), ops.any(in_some_head, axis=-2))
