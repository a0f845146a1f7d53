"""Key/value cache as a dict of tensors: build, append, validate.

It is a dict of tensors, so that a model can tell it from keys, take it as inputs and give it as outputs. It may grow by
the keys and values of further steps; or it has room for a fixed number of them, and a length says how many are there.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from .._checks.call_arguments import check_integers
from .._shapes import shape_of, shapes_agree
from .._types import Shape, Tensor

PROJECTED = "projected_keys"
VALUES = "projected_values"
LENGTH = "length"

_KINDS = ({PROJECTED}, {PROJECTED, VALUES}, {PROJECTED, VALUES, LENGTH})


class Keys(NamedTuple):
    """Keys as a caller passed them, and what came with them."""

    tensor: Tensor  # `B + (Tk, Dk)`, or projected
    mask: Tensor | None = None  # booleans `B + (Tk,)`
    projected: bool = False  # by `precompute`
    values: Tensor | None = None  # projected values; None if they are passed separately
    length: Tensor | None = None  # integers `B`, the number of valid keys; None if all are


@keras.saving.register_keras_serializable(package="keras_attn")
class ZerosLike(keras.Operation):
    """Zeros `B + (T, size)` for vectors `B + (T, D)`: in a functional model they stand where only a size is wanted."""

    def __init__(self, size: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.size = size

    def call(self, vectors: Tensor) -> Tensor:
        return ops.zeros((*ops.shape(vectors)[:-1], self.size), vectors.dtype)

    def compute_output_spec(self, vectors: Tensor) -> Tensor:
        return keras.KerasTensor((*vectors.shape[:-1], self.size), vectors.dtype)


def unpacked(keys: Any, keys_mask: Any) -> Keys:
    """The keys, or those of a state that `precompute` gave. Keras gives the mask of a dict as a dict too."""
    if not isinstance(keys, Mapping):
        return Keys(keys, keys_mask, False)
    if set(keys) not in _KINDS:
        raise ValueError(
            f"`keys` must be a tensor, or the dict that `precompute` gives, with the key {PROJECTED!r}, and perhaps "
            f"{VALUES!r} and {LENGTH!r}. Received: a dict with the keys {sorted(map(str, keys))}."
        )
    mask = keys_mask.get(PROJECTED) if isinstance(keys_mask, Mapping) else keys_mask
    return Keys(keys[PROJECTED], mask, True, keys.get(VALUES), keys.get(LENGTH))


def values_of(keys: Keys, values: Any) -> Any:
    """The values that a call pools: those of the state where it holds any, else those it was given."""
    if keys.values is None:
        return values
    if values is not None:
        raise ValueError(
            "`values` must be None where the keys are a state that holds values. "
            "Received both. Leave `values` out, or give `precompute` the keys alone."
        )
    return keys.values


def check_state(state: Any) -> None:
    """Raises ValueError unless steps can be appended to a state."""
    if not isinstance(state, Mapping) or set(state) not in _KINDS[1:]:
        received = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(
            f"`state` must be a dict with the tensors {PROJECTED!r} and {VALUES!r}, and {LENGTH!r} if its capacity is "
            f"fixed, as `precompute(keys, values)` gives it. Received: {received}."
        )


def check_length(length: Tensor, batch: Shape) -> None:
    """Checks how many steps a state of fixed capacity has, for each example of a batch."""
    check_integers(LENGTH, ", the number of steps in a state", length)
    if not shapes_agree(shape_of(length), batch):
        raise ValueError(
            f"The `{LENGTH}` of a state must have shape B, here {batch}: one number for each example. "
            f"Received: {LENGTH} shape {shape_of(length)}."
        )


def check_appended(state: Mapping[str, Tensor], steps: Mapping[str, Tensor], axis: int) -> None:
    """Checks that steps, projected, can be appended to a state: they agree in every axis but that of the steps."""
    for name, new in steps.items():
        shapes = [(*shape[:axis], *shape[axis + 1 :]) for shape in (shape_of(state[name]), shape_of(new))]
        if len(shape_of(state[name])) != len(shape_of(new)) or not shapes_agree(*shapes):
            raise ValueError(
                f"The {name!r} of a state must have the shape of what is appended to it, but for the number of steps, "
                f"on axis {axis}. Received: shape {shape_of(state[name])} in the state, {shape_of(new)} appended. "
                "Append as many examples as the state has, with the layer that made it."
            )


def next_position(state: Mapping[str, Tensor] | None, axis: int) -> Any:
    """The position after the last step of a state: an integer, a scalar tensor or integers `B`."""
    if state is None:
        return 0
    return state[LENGTH] if LENGTH in state else ops.shape(state[PROJECTED])[axis]


def appended(state: Mapping[str, Tensor], steps: Mapping[str, Tensor], axis: int) -> dict[str, Tensor]:
    """A state with the projected keys and values of further steps."""
    if LENGTH not in state:
        return {
            name: ops.concatenate([state[name], ops.cast(new, state[name].dtype)], axis) for name, new in steps.items()
        }
    length, added = ops.cast(state[LENGTH], "int32"), ops.shape(steps[PROJECTED])[axis]
    written = {name: append_rows(state[name], new, length, axis) for name, new in steps.items()}
    return {**written, LENGTH: length + added}


def have_lost_steps(keys: Keys, axis: int) -> Tensor | None:
    """True `B` where a state had no room for all of its steps; None where it grows."""
    return None if keys.length is None else ops.cast(keys.length, "int32") > ops.shape(keys.tensor)[axis]


def nan_where(lost: Tensor, queries_mask: Tensor | None, pooled: Tensor) -> Tensor:
    """Set output `B + (Tq, D)` or weights `B + (H, Tq, Tk)` to NaN in examples that lost steps: no number is right.

    Queries that are masked keep their zeros.
    """
    lost = ops.expand_dims(lost, -1)
    lost = lost if queries_mask is None else ops.logical_and(lost, queries_mask)
    for _ in range(len(pooled.shape) - len(lost.shape) - 1):
        lost = ops.expand_dims(lost, -2)  # heads
    return ops.where(ops.expand_dims(lost, -1), math.nan, pooled)


def preallocated(steps: Mapping[str, Tensor], capacity: int, batch: tuple[Any, ...], axis: int) -> dict[str, Tensor]:
    """A state of fixed capacity whose first steps are these."""
    count = ops.shape(steps[PROJECTED])[axis]
    if isinstance(count, int) and count > capacity:
        raise ValueError(
            f"`capacity` must be at least the number of keys. Received: capacity={capacity} for {count} keys."
        )
    empty = {LENGTH: ops.zeros(batch, "int32")}
    for name, tensor in steps.items():
        sizes = [*ops.shape(tensor)]
        sizes[axis] = capacity
        empty[name] = ops.zeros(sizes, tensor.dtype)
    return appended(empty, steps, axis)


def append_rows(past: Tensor, steps: Tensor, length: Tensor, axis: int) -> Tensor:
    """Append steps `B + (..., T, ...)` to the first `length` of each example of `past`, `B + (..., C, ...)`.

    Steps for which there is no room are lost. The length are integers `B`; T and the capacity C are on `axis`.
    """
    capacity, added = ops.shape(past)[axis], ops.shape(steps)[axis]
    places = ops.arange(capacity, dtype="int32") - ops.expand_dims(length, -1)
    between, after = (1,) * (axis - len(length.shape)), (1,) * (len(past.shape) - axis - 1)
    places = ops.reshape(places, (*ops.shape(length), *between, capacity, *after))
    steps = ops.cast(steps, past.dtype)
    if not (isinstance(added, int) and added == 1):  # a single step is the same at each place that gets one
        # with one more, which no place gets: there may be no step, and then nothing to take
        one_more = [[0, int(number == axis)] for number in range(len(steps.shape))]
        everywhere = ops.broadcast_to(ops.clip(places, 0, added), ops.shape(past))
        steps = ops.take_along_axis(ops.pad(steps, one_more), everywhere, axis=axis)
    return ops.where(ops.logical_and(places >= 0, places < added), steps, past)


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
