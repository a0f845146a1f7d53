"""Key/value cache as a dict of tensors: build, append, validate.

A dict can be an input or output of a model, and layers distinguish a dict from plain keys. A cache either grows with
each step, or has a fixed capacity C and an entry `length`, int32 `B`: the number of steps written so far.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from .._checks.call_arguments import check_integers
from .._shapes import shape_of, shapes_agree
from .._types import Shape, Tensor

KEYS_ENTRY = "projected_keys"
VALUES_ENTRY = "projected_values"
LENGTH_ENTRY = "length"

# Keys alone; keys and values; keys and values with a fixed capacity.
_ENTRY_SETS = ({KEYS_ENTRY}, {KEYS_ENTRY, VALUES_ENTRY}, {KEYS_ENTRY, VALUES_ENTRY, LENGTH_ENTRY})


Cache: TypeAlias = Mapping[str, Tensor]


class KeyInput(NamedTuple):
    """The argument `keys` of a call: plain keys, or the entries of a cache."""

    tensor: Tensor  # `B + (Tk, Dk)`, or projected
    mask: Tensor | None = None  # booleans `B + (Tk,)`
    projected: bool = False  # whether `tensor` is from a cache
    values: Tensor | None = None  # projected values; None if passed separately
    length: Tensor | None = None  # integers `B`, number of steps; None without a capacity


@keras.saving.register_keras_serializable(package="keras_attn")
class ZerosLike(keras.Operation):
    """Zeros `B + (T, size)` for vectors `B + (T, D)`: placeholder queries or values in a functional model."""

    def __init__(self, size: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.size = size

    def call(self, vectors: Tensor) -> Tensor:
        return ops.zeros((*ops.shape(vectors)[:-1], self.size), vectors.dtype)

    def compute_output_spec(self, vectors: Tensor) -> Tensor:
        return keras.KerasTensor((*vectors.shape[:-1], self.size), vectors.dtype)


def parse_keys(keys: Any, keys_mask: Any) -> KeyInput:
    """Parse keys `B + (Tk, Dk)` or a cache, and the mask that Keras passes: a dict if the keys are a dict."""
    if not isinstance(keys, Mapping):
        return KeyInput(keys, keys_mask, False)
    if set(keys) not in _ENTRY_SETS:
        raise ValueError(
            f"`keys` must be a tensor, or the dict that `precompute` returns, with the key {KEYS_ENTRY!r} and "
            f"optionally {VALUES_ENTRY!r} and {LENGTH_ENTRY!r}. Received: a dict with the keys "
            f"{sorted(map(str, keys))}."
        )
    mask = keys_mask.get(KEYS_ENTRY) if isinstance(keys_mask, Mapping) else keys_mask
    return KeyInput(keys[KEYS_ENTRY], mask, True, keys.get(VALUES_ENTRY), keys.get(LENGTH_ENTRY))


def select_values(keys: KeyInput, values: Any) -> Any:
    """Return the values that a call pools: those of the cache if it has values, else the argument `values`."""
    if keys.values is None:
        return values
    if values is not None:
        raise ValueError(
            "`values` must be None if the state in place of the keys has values. "
            "Received both. Omit `values`, or pass only the keys to `precompute`."
        )
    return keys.values


def check_cache(cache: Any) -> None:
    """Raise ValueError unless an object is a cache with keys and values."""
    if not isinstance(cache, Mapping) or set(cache) not in _ENTRY_SETS[1:]:
        received = sorted(map(str, cache)) if isinstance(cache, Mapping) else type(cache).__name__
        raise ValueError(
            f"`state` must be a dict with the tensors {KEYS_ENTRY!r} and {VALUES_ENTRY!r}, and {LENGTH_ENTRY!r} if its "
            f"capacity is fixed, as `precompute(keys, values)` returns. Received: {received}."
        )


def check_cache_length(length: Tensor, batch: Shape) -> None:
    """Check dtype and shape of the length of a cache with fixed capacity: integers `B`."""
    check_integers(LENGTH_ENTRY, ", the number of steps in a state", length)
    if not shapes_agree(shape_of(length), batch):
        raise ValueError(
            f"The `{LENGTH_ENTRY}` of a state must have shape B, here {batch}: one integer per example. "
            f"Received: {LENGTH_ENTRY} shape {shape_of(length)}."
        )


def check_steps_fit(cache: Cache, steps: Cache, axis: int) -> None:
    """Check that projected steps have the shapes of the cache entries, except on the axis of the steps."""
    for name, step in steps.items():
        shapes = [(*shape[:axis], *shape[axis + 1 :]) for shape in (shape_of(cache[name]), shape_of(step))]
        if len(shape_of(cache[name])) != len(shape_of(step)) or not shapes_agree(*shapes):
            raise ValueError(
                f"The {name!r} of a state and of appended steps must have the same shape except on axis {axis}, the "
                f"number of steps. Received: shape {shape_of(cache[name])} in the state, {shape_of(step)} appended. "
                "Append as many examples as the state has, with the layer that made it."
            )


def compute_next_position(cache: Cache | None, axis: int) -> Any:
    """Return the position after the last step of a cache: an integer, a scalar tensor or integers `B`."""
    if cache is None:
        return 0
    return cache[LENGTH_ENTRY] if LENGTH_ENTRY in cache else ops.shape(cache[KEYS_ENTRY])[axis]


def append_steps(cache: Cache, steps: Cache, axis: int) -> dict[str, Tensor]:
    """Return a cache with the projected keys and values of further steps."""
    if LENGTH_ENTRY not in cache:
        return {
            name: ops.concatenate([cache[name], ops.cast(step, cache[name].dtype)], axis)
            for name, step in steps.items()
        }
    length, num_steps = ops.cast(cache[LENGTH_ENTRY], "int32"), ops.shape(steps[KEYS_ENTRY])[axis]
    entries = {name: write_steps(cache[name], step, length, axis) for name, step in steps.items()}
    return {**entries, LENGTH_ENTRY: length + num_steps}


def has_overflowed(keys: KeyInput, axis: int) -> Tensor | None:
    """Return booleans `B`, True if an example has more steps than the capacity; None if the cache grows."""
    return None if keys.length is None else ops.cast(keys.length, "int32") > ops.shape(keys.tensor)[axis]


def nan_if_overflowed(overflowed: Tensor, queries_mask: Tensor | None, pooled: Tensor) -> Tensor:
    """Set output `B + (Tq, D)` or weights `B + (H, Tq, Tk)` to NaN in examples `B` whose cache has overflowed.

    Masked queries, `B + (Tq,)`, keep their zeros.
    """
    # NaN instead of an error: lengths are tensors, and a compiled or exported model cannot raise an exception.
    is_nan = ops.expand_dims(overflowed, -1)
    is_nan = is_nan if queries_mask is None else ops.logical_and(is_nan, queries_mask)
    for _ in range(len(pooled.shape) - len(is_nan.shape) - 1):
        is_nan = ops.expand_dims(is_nan, -2)  # heads
    return ops.where(ops.expand_dims(is_nan, -1), math.nan, pooled)


def allocate_cache(steps: Cache, capacity: int, batch: tuple[Any, ...], axis: int) -> dict[str, Tensor]:
    """Return a cache of fixed capacity with `steps` as its first steps."""
    num_keys = ops.shape(steps[KEYS_ENTRY])[axis]
    if isinstance(num_keys, int) and num_keys > capacity:
        raise ValueError(
            f"`capacity` must be at least the number of keys. Received: capacity={capacity} for {num_keys} keys."
        )
    empty = {LENGTH_ENTRY: ops.zeros(batch, "int32")}
    for name, tensor in steps.items():
        sizes = [*ops.shape(tensor)]
        sizes[axis] = capacity
        empty[name] = ops.zeros(sizes, tensor.dtype)
    return append_steps(empty, steps, axis)


def write_steps(past: Tensor, steps: Tensor, length: Tensor, axis: int) -> Tensor:
    """Write steps `B + (..., T, ...)` after the first `length`, int32 `B`, steps of `past`, `B + (..., C, ...)`.

    T and the capacity C are on `axis`. Steps beyond the capacity are dropped.
    """
    # Slot c of the result is step c - length if 0 <= c - length < T, else slot c of `past`. A gather and a select keep
    # the shapes static, as XLA and JAX require, although the lengths of the examples differ.
    capacity, num_steps = ops.shape(past)[axis], ops.shape(steps)[axis]
    index = ops.arange(capacity, dtype="int32") - ops.expand_dims(length, -1)
    before, after = (1,) * (axis - len(length.shape)), (1,) * (len(past.shape) - axis - 1)
    index = ops.reshape(index, (*ops.shape(length), *before, capacity, *after))
    steps = ops.cast(steps, past.dtype)
    if not (isinstance(num_steps, int) and num_steps == 1):  # a single step broadcasts, without a gather
        # Pad by one step that no slot selects: a gather from an axis of size 0 fails, and T may be 0.
        padding = [[0, int(number == axis)] for number in range(len(steps.shape))]
        indices = ops.broadcast_to(ops.clip(index, 0, num_steps), ops.shape(past))
        steps = ops.take_along_axis(ops.pad(steps, padding), indices, axis=axis)
    return ops.where(ops.logical_and(index >= 0, index < num_steps), steps, past)


def check_not_cache(keys_shape: Any) -> None:
    """Raise ValueError if `keys_shape` is the dict of a cache."""
    if isinstance(keys_shape, Mapping):
        raise ValueError(
            "A layer that is not built yet must get keys, not the result of `precompute`: its weights have the size of "
            "the keys. Build it first, or call the layer that computed the state."
        )


def check_layer_built(layer: Any) -> None:
    """Raise ValueError if a layer is not built: its weights also depend on the sizes of queries and values."""
    if not layer.built:
        raise ValueError(
            f"`{layer.name}` must be built before `precompute`: call it once, or call "
            "`build(queries_shape, keys_shape, values_shape)`."
        )


def check_projected_size(shape: Shape, size: int | None, axis: int = -1) -> None:
    """Check the size of an axis of projected keys; any size passes if `size` is None."""
    if size is not None and shape[axis] not in (None, size):
        raise ValueError(
            f"Axis {axis} of the projected keys must have size {size}. Received: keys shape {shape}. "
            "Pass the result of this layer's `precompute`."
        )
