"""Base class of layers with a key/value cache: `precompute` and `append`."""

from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_not_complex, check_not_none, check_rank
from .._checks.constructor_arguments import check_positive_integer
from .._keras.private_api import get_keras_mask, set_keras_mask
from .._shapes import as_tensor, shape_of, shapes_agree
from .._types import Shape, Tensor
from . import cache as kv_cache
from .cache import KEYS_ENTRY, LENGTH_ENTRY, VALUES_ENTRY, Cache, KeyInput, ZerosLike


class KVCacheLayer(keras.layers.Layer):
    """Base class with `precompute` and `append`, which build a key/value cache.

    A subclass defines `_check_shapes`, and `_project_keys(keys, offset)`, which projects keys `B + (Tk, Dk)`, the first
    at position `offset`. If values are projected, a subclass also overrides `_project_values`.
    """

    def _check_shapes(self, queries_shape: Shape, keys: KeyInput, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        """Check the shapes of queries, keys and values, and return the shapes as `B + (T, D)`."""
        raise NotImplementedError

    def _project_values(self, values: Tensor, offset: Any) -> Tensor:
        """Return the projections of values `B + (Tk, Dv)`; by default the values."""
        return values

    def _time_axis(self, rank: int) -> int:
        """Return the axis of the steps in projected keys, for keys with `rank` axes."""
        return rank - 2

    def precompute(
        self, keys: Tensor, values: Tensor | None = None, *, capacity: int | None = None
    ) -> dict[str, Tensor]:
        """Compute a key/value cache, which calls accept in place of `keys`.

        A call with the cache returns the same as a call with the keys. The cache has the implicit Keras mask of `keys`.

        Args:
            keys: Floats, `B + (Tk, Dk)`. Padding must be finite if a gradient is taken through it.
            values: Floats, `B + (Tk, Dv)`, to be stored in the result as well; calls then take no values. None if
                values are passed to calls.
            capacity: Largest number of steps. `append` then writes into tensors of fixed shape, as XLA and JAX
                require. None for a result that grows.

        Returns:
            A dict with the tensor `"projected_keys"`, `B + (Tk, ...)`, and `"projected_values"` if values are passed.
            With a capacity, Tk is the capacity, and the dict has `"length"`, int32 `B`, the number of steps so far. In
            `MultiHeadAttention` both tensors have an axis of heads before the axis of steps, `B + (G, Tk, ...)`.

        Raises:
            ValueError: If the layer is not built, the capacity is too small, or shapes do not match.

        Example:
            >>> state = layer.precompute(keys)
            >>> for query in steps:
            ...     context = layer(query, state, values, valid_lens)
        """
        kv_cache.check_layer_built(self)
        check_not_none(keys=keys)
        if capacity is not None:
            check_positive_integer("capacity", capacity)
            check_not_none(values=values)
        # A call of this layer, so that a functional model tracks its weights. In a clone of the model this may be the
        # first call, which builds the layer: then queries and values need the right sizes. `_only_state` and its
        # values are call arguments in saved `.keras` files, and must not change.
        only_state = True if values is None else {"holds_values": True, "capacity": capacity}
        queries = self._make_placeholder(keys, "queries")
        values = self._make_placeholder(keys, "values") if values is None else values
        cache: dict[str, Tensor] = self(queries, keys, values, _only_state=only_state)
        return cache

    def append(self, state: dict[str, Tensor], keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Append the keys and values of further steps to a state; return the new state.

        In a call with the state, the queries are the last of all steps: causal masks and windows count from there.

        Args:
            state: The result of `precompute(keys, values)` or `append`: `"projected_keys"` and `"projected_values"`.
                With a `"length"` the capacity is fixed, and steps beyond it are dropped.
            keys: Floats, `B + (T, Dk)`, for one or more steps.
            values: Floats, `B + (T, Dv)`.

        Returns:
            A state with the same entries.

        Raises:
            ValueError: If the layer is not built, the state has no values, or shapes do not match.

        Example:
            >>> state = layer.precompute(x[:, :1], x[:, :1])
            >>> state = layer.append(state, x[:, 1:2], x[:, 1:2])
            >>> output = layer(x[:, 1:2], state, use_causal_mask=True)
        """
        kv_cache.check_layer_built(self)
        check_not_none(keys=keys, values=values)
        kv_cache.check_cache(state)
        past = {name: as_tensor(x) for name, x in state.items()}
        queries = self._make_placeholder(keys, "queries")
        cache: dict[str, Tensor] = self(queries, keys, values, _only_state={"past": past})
        return cache

    def _make_placeholder(self, keys: Tensor, name: str) -> Tensor:
        """Return placeholder queries or values `B + (Tk, D)`, with the size D for which the layer was built."""
        # The keys serve if they have size D and no implicit mask, which Keras would set on the result of the call.
        shape = (self.get_build_config() or {}).get("shapes_dict", {}).get(f"{name}_shape")
        if shape is None or shape[-1] is None:
            return keys
        has_size = shape_of(keys)[-1:] == (shape[-1],)
        return keys if has_size and get_keras_mask(keys) is None else ZerosLike(shape[-1])(keys)

    def _build_cache(self, keys: Tensor, values: Tensor, only_state: Any, mask: Tensor | None) -> dict[str, Tensor]:
        """Return a cache of keys, and of values unless `only_state` is True; or append both to a cache."""
        request = {} if only_state is True else only_state
        self._check_keys(keys, values if request else None)
        capacity, past = request.get("capacity"), request.get("past")
        axis, batch = self._time_axis(len(keys.shape)), ops.shape(keys)[:-2]
        if past is not None and LENGTH_ENTRY in past:
            kv_cache.check_cache_length(past[LENGTH_ENTRY], shape_of(keys)[:-2])
        offset = kv_cache.compute_next_position(past, axis)
        steps = {KEYS_ENTRY: self._project_keys(ops.cast(keys, self.compute_dtype), offset)}
        if request:
            steps[VALUES_ENTRY] = self._project_values(ops.cast(values, self.compute_dtype), offset)
        if past is not None:
            kv_cache.check_steps_fit(past, steps, axis)
            cache = kv_cache.append_steps(past, steps, axis)
        else:
            cache = steps if capacity is None else kv_cache.allocate_cache(steps, capacity, batch, axis)
        _set_cache_mask(cache, mask, past, (*batch, ops.shape(keys)[-2]), axis)
        return cache

    def _compute_cache_spec(
        self, queries: Tensor, keys: Tensor, values: Tensor, only_state: Any, mask: Tensor | None
    ) -> Any:
        """Return the shapes and dtypes of the result of `_build_cache`, as an operation does: by tracing `call`."""
        self._check_keys(keys, None if only_state is True else values)
        return keras.Operation.compute_output_spec(self, queries, keys, values, keys_mask=mask, _only_state=only_state)

    def _check_keys(self, keys: Tensor, values: Tensor | None) -> None:
        """Check keys `B + (Tk, Dk)`, and values `B + (Tk, Dv)` if passed."""
        check_not_none(keys=keys)
        check_not_complex(keys=keys)
        shape = shape_of(keys)
        check_rank("keys", shape, "(Tk, Dk)")
        values_shape: Shape = (*shape[:-1], None)
        if values is not None:
            check_not_complex(values=values)
            if not shapes_agree(shape_of(values)[:-1], shape[:-1]):
                raise ValueError(
                    "`keys` and `values` of a state must agree in all axes but the last: each key has one value. "
                    f"Received: keys shape {shape}, values shape {shape_of(values)}."
                )
            values_shape = shape_of(values)
        self._check_shapes((*shape[:-2], None, None), KeyInput(shape, None, False), values_shape)


def _set_cache_mask(cache: Cache, mask: Tensor | None, past: Cache | None, shape: tuple[Any, ...], axis: int) -> None:
    """Set the implicit Keras mask of a cache: the mask of `past`, then booleans `B + (T,)` of the last steps.

    A mask of None is all True. `shape` is `B + (T,)`, and `axis` the axis of the steps in the projected keys.
    """
    before = None if past is None else get_keras_mask(past[KEYS_ENTRY])
    if mask is None and before is None:
        return
    *batch, _ = shape
    latest = ops.ones(shape, "bool") if mask is None else mask
    if past is None and LENGTH_ENTRY not in cache:
        set_keras_mask(cache[KEYS_ENTRY], latest)
        return
    # Without a mask all slots are True, unused slots of a fixed capacity too: calls mask these by the length.
    if before is None:
        before = ops.ones((*batch, ops.shape((past or cache)[KEYS_ENTRY])[axis]), "bool")
    if LENGTH_ENTRY in cache:
        length = ops.zeros(batch, "int32") if past is None else ops.cast(past[LENGTH_ENTRY], "int32")
        set_keras_mask(cache[KEYS_ENTRY], kv_cache.write_steps(before, latest, length, len(batch)))
    else:
        set_keras_mask(cache[KEYS_ENTRY], ops.concatenate([before, latest], -1))
