"""What of a layer depends on its keys alone, computed once and passed in the place of the keys at every step.

It is a dict with one tensor, so that a model can tell it from keys, take it as an input and give it as an output.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from ._types import Shape, Tensor

PROJECTED = "projected_keys"


class Keys(NamedTuple):
    """Keys as a caller passed them.

    Attributes:
        tensor: `B + (Tk, Dk)`, or projected.
        mask: Booleans `B + (Tk,)`, or None.
        projected: Whether they come from `precompute`.
    """

    tensor: Tensor
    mask: Tensor | None
    projected: bool


@keras.saving.register_keras_serializable(package="keras_attn")
class ZerosLike(keras.Operation):
    """Zeros in the place of vectors `B + (T, D)`: `B + (T, size)`.

    In a functional model they stand where only a size is wanted.
    """

    def __init__(self, size: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.size = size

    def call(self, vectors: Tensor) -> Tensor:
        """Makes the zeros."""
        return ops.zeros((*ops.shape(vectors)[:-1], self.size), vectors.dtype)

    def compute_output_spec(self, vectors: Tensor) -> Tensor:
        """Their shape and dtype."""
        return keras.KerasTensor((*vectors.shape[:-1], self.size), vectors.dtype)


def unpacked(keys: Any, keys_mask: Any) -> Keys:
    """The keys, or those of a state that `precompute` gave. Keras gives the mask of a dict as a dict too."""
    if not isinstance(keys, Mapping):
        return Keys(keys, keys_mask, False)
    if set(keys) != {PROJECTED}:
        raise ValueError(
            f"`keys` must be a tensor, or the dict that `precompute` gives, with the key {PROJECTED!r}. "
            f"Received: a dict with the keys {sorted(map(str, keys))}."
        )
    return Keys(keys[PROJECTED], keys_mask[PROJECTED] if isinstance(keys_mask, Mapping) else keys_mask, True)


def refuse_state(keys_shape: Any) -> None:
    """Raises ValueError when the shape of keys is that of a state: no weights can be made from it."""
    if isinstance(keys_shape, Mapping):
        raise ValueError(
            "A layer that is not built yet must get keys, not what `precompute` gave: the size of the keys is that of "
            "its weights. Build it first, or call the layer that computed the state."
        )


def check_built(layer: Any) -> None:
    """Raises ValueError when a layer is not built: keys alone do not tell the sizes of its weights."""
    if not layer.built:
        raise ValueError(
            f"`{layer.name}` must be built before `precompute`: call it once, or its method "
            "`build(queries_shape, keys_shape, values_shape)`."
        )


def check_projected(shape: Shape, size: int | None, axis: int = -1) -> None:
    """Checks an axis of projected keys; `size` is None where any will do."""
    if size is not None and shape[axis] not in (None, size):
        raise ValueError(
            f"Axis {axis} of the projected keys must have size {size}. Received: keys shape {shape}. "
            "Pass what `precompute` of this very layer gave."
        )
