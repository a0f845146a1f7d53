"""The implicit Keras mask of a key/value cache."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from .._keras.private_api import get_keras_mask, set_keras_mask
from .._types import Tensor
from .cache import LENGTH, PROJECTED, append_rows


def carry_mask(
    state: Mapping[str, Tensor],
    mask: Tensor | None,
    past: Mapping[str, Tensor] | None,
    shape: tuple[Any, ...],
    axis: int,
) -> None:
    """Lets a state carry the mask of the steps that were put into it.

    Args:
        state: The state, with all steps.
        mask: Booleans `B + (T,)` of the last steps, or None where all take part.
        past: The state before them, or None.
        shape: `B + (T,)`.
        axis: That of the steps in what is projected.
    """
    before = None if past is None else get_keras_mask(past[PROJECTED])
    if mask is None and before is None:
        return
    *batch, _ = shape
    latest = ops.ones(shape, "bool") if mask is None else mask
    if past is None and LENGTH not in state:
        set_keras_mask(state[PROJECTED], latest)
        return
    if before is None:  # in a state of fixed capacity the length says which places hold a step
        before = ops.ones((*batch, ops.shape((past or state)[PROJECTED])[axis]), "bool")
    if LENGTH in state:
        length = ops.zeros(batch, "int32") if past is None else ops.cast(past[LENGTH], "int32")
        set_keras_mask(state[PROJECTED], append_rows(before, latest, length, len(batch)))
    else:
        set_keras_mask(state[PROJECTED], ops.concatenate([before, latest], -1))


def without_mask(tensor: Tensor) -> Tensor:
    """The tensor, carrying no mask."""
    return tensor if get_keras_mask(tensor) is None else ops.copy(tensor)
