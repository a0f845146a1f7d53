"""Base class with `precompute` and `append`."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_given, check_rank, check_real
from .._checks.constructor_arguments import check_positive_integer
from .._keras.private_api import get_keras_mask, set_keras_mask
from .._shapes import as_tensor, shape_of, shapes_agree
from .._types import Shape, Tensor
from .cache import (
    LENGTH,
    PROJECTED,
    VALUES,
    Keys,
    ZerosLike,
    append_rows,
    appended,
    check_appended,
    check_built,
    check_length,
    check_state,
    next_position,
    preallocated,
)


class Precomputing(keras.layers.Layer):
    """A layer whose call can return a state of keys and values alone.

    A subclass defines `_checked_shapes`, and `_project(keys, offset)`: what depends on keys `B + (Tk, Dk)` alone, the
    first at position `offset`. If values are projected, it also overrides `_project_values`.
    """

    def _checked_shapes(self, queries_shape: Shape, keys: Keys, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        """Check three shapes, that in `keys` among them, and return them as `B + (T, D)`."""
        raise NotImplementedError

    def _project_values(self, values: Tensor, offset: Any) -> Tensor:
        """What depends on values `B + (Tk, Dv)` alone."""
        return values

    def _time_axis(self, rank: int) -> int:
        """The axis of the steps in what is projected, of keys of so many axes."""
        return rank - 2

    def precompute(
        self, keys: Tensor, values: Tensor | None = None, *, capacity: int | None = None
    ) -> dict[str, Tensor]:
        """Computes what depends on keys alone, or on keys and values. Calls take the result in place of `keys`.

        Such a call returns what a call with the keys returns. The result carries the mask that `keys` carries.

        Args:
            keys: Floats, `B + (Tk, Dk)`. Padding should be finite, unless no gradient is taken through it.
            values: Floats, `B + (Tk, Dv)`, to be held in the result as well; calls then take no values. None if calls
                take them.
            capacity: The number of steps that the result has room for. `append` then fills it without changing its
                shapes, as XLA and JAX need. None for a result that grows.

        Returns:
            A dict with the tensor `"projected_keys"`, `B + (Tk, ...)`, and `"projected_values"` if values are given.
            With a capacity, that is the size in place of Tk, and there is `"length"`, int32 `B`, the number of steps so
            far. In `MultiHeadAttention` both tensors have an axis of heads before the axis of steps:
            `B + (G, Tk, ...)`.

        Raises:
            ValueError: If the layer is not built, the capacity is too small, or shapes do not agree.

        Example:
            >>> state = layer.precompute(keys)
            >>> for query in steps:
            ...     context = layer(query, state, values, valid_lens)
        """
        check_built(self)
        check_given(keys=keys)
        if capacity is not None:
            check_positive_integer("capacity", capacity)
            check_given(values=values)
        holds_values = values is not None
        # A call of this layer, so that a functional model knows whose weights they are. A copy of the model may make it
        # the first call, which builds the layer: then queries and values of the right sizes must be there.
        queries = self._zeros_like(keys, "queries")
        values = values if holds_values else self._zeros_like(keys, "values")
        only_state = {"holds_values": True, "capacity": capacity} if holds_values else True
        state: dict[str, Tensor] = self(queries, keys, values, _only_state=only_state)
        return state

    def append(self, state: dict[str, Tensor], keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Appends the keys and values of further steps to a state, and returns the new state.

        In a call with the state, the queries are the last of all steps: causal masks and windows count from there.

        Args:
            state: The result of `precompute(keys, values)` or `append`: `"projected_keys"` and `"projected_values"`.
                With a `"length"` it has a fixed capacity, and steps beyond that are lost.
            keys: Floats, `B + (T, Dk)`, of one step or more.
            values: Floats, `B + (T, Dv)`.

        Returns:
            A state of the same kind.

        Raises:
            ValueError: If the layer is not built, the state holds no values, or shapes do not agree.

        Example:
            >>> state = layer.precompute(x[:, :1], x[:, :1])
            >>> state = layer.append(state, x[:, 1:2], x[:, 1:2])
            >>> output = layer(x[:, 1:2], state, use_causal_mask=True)
        """
        check_built(self)
        check_given(keys=keys, values=values)
        check_state(state)
        appended: dict[str, Tensor] = self(
            self._zeros_like(keys, "queries"),
            keys,
            values,
            _only_state={"past": {name: as_tensor(x) for name, x in state.items()}},
        )
        return appended

    def _zeros_like(self, keys: Tensor, name: str) -> Tensor:
        """What stands for queries or values: of the keys' length, and of the size for which the layer was built.

        That is the keys themselves where they have the size; a mask that they carry would come out with the state.
        """
        shape = (self.get_build_config() or {}).get("shapes_dict", {}).get(f"{name}_shape")
        if shape is None or shape[-1] is None:
            return keys
        is_of_size = shape_of(keys)[-1:] == (shape[-1],)
        return keys if is_of_size and get_keras_mask(keys) is None else ZerosLike(shape[-1])(keys)

    def _state_of(self, keys: Tensor, values: Tensor, wanted: Any, mask: Tensor | None) -> dict[str, Tensor]:
        """The state of keys, and of values if they are wanted, alone or appended to those of another."""
        wanted = {} if wanted is True else wanted
        self._check_keys(keys, values if wanted else None)
        capacity, past = wanted.get("capacity"), wanted.get("past")
        axis, batch = self._time_axis(len(keys.shape)), ops.shape(keys)[:-2]
        if past is not None and LENGTH in past:
            check_length(past[LENGTH], shape_of(keys)[:-2])
        offset = next_position(past, axis)
        steps = {PROJECTED: self._project(ops.cast(keys, self.compute_dtype), offset)}
        if wanted:
            steps[VALUES] = self._project_values(ops.cast(values, self.compute_dtype), offset)
        if past is not None:
            check_appended(past, steps, axis)
            state = appended(past, steps, axis)
        else:
            state = steps if capacity is None else preallocated(steps, capacity, batch, axis)
        _carry_mask(state, mask, past, (*batch, ops.shape(keys)[-2]), axis)
        return state

    def _spec_of_state(self, queries: Tensor, keys: Tensor, values: Tensor, wanted: Any, mask: Tensor | None) -> Any:
        """The shapes and dtypes of what `_state_of` returns: that of an operation, which traces `call`."""
        self._check_keys(keys, None if wanted is True else values)
        return keras.Operation.compute_output_spec(self, queries, keys, values, keys_mask=mask, _only_state=wanted)

    def _check_keys(self, keys: Tensor, values: Tensor | None) -> None:
        """Checks the keys of a state, and its values where it shall hold them."""
        check_given(keys=keys)
        check_real(keys=keys)
        shape = shape_of(keys)
        check_rank("keys", shape, "(Tk, Dk)")
        values_shape: Shape = (*shape[:-1], None)
        if values is not None:
            check_real(values=values)
            if not shapes_agree(shape_of(values)[:-1], shape[:-1]):
                raise ValueError(
                    "`keys` and `values` of a state must agree in all axes but the last: each key has one value. "
                    f"Received: keys shape {shape}, values shape {shape_of(values)}."
                )
            values_shape = shape_of(values)
        self._checked_shapes((*shape[:-2], None, None), Keys(shape, None, False), values_shape)


def _carry_mask(
    state: Mapping[str, Tensor],
    mask: Tensor | None,
    past: Mapping[str, Tensor] | None,
    shape: tuple[Any, ...],
    axis: int,
) -> None:
    """Let a state carry the mask of its steps: that of `past`, and booleans `B + (T,)` of the last steps, None for all.

    `shape` is `B + (T,)`, and `axis` that of the steps in the projected keys.
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
