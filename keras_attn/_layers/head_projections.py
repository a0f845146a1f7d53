"""Input and output projections of multi-head attention, and the heads they produce."""

import inspect
from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_last_axis, check_not_none, check_pooling_shapes
from .._keras.private_api import get_keras_mask
from .._keras.projections import make_projection
from .._maths.heads import ROLES, apply_dense, join_heads, repeat_heads, split_heads
from .._maths.masks import zero_masked
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_layer import AttentionLayer
from .._shapes import dtype_of, shape_of, shapes_agree
from .._states.cache import KEYS_ENTRY, KeyInput, check_not_cache, check_projected_size
from .._types import Shape, Tensor


class HeadProjections(AttentionLayer):
    """Base class with the projections `W_q`, `W_k`, `W_v` and `W_o` of `MultiHeadAttention`."""

    num_heads: int
    num_kv_heads: int | None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sizes: tuple[int | None, ...] = (None, None, None)

    @property
    def _kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raise ValueError unless the shapes `B + (T, D)` fit each other and the kernels."""
        check_pooling_shapes(queries_shape, keys_shape, values_shape)
        shapes = {"queries": queries_shape, "keys": keys_shape, "values": values_shape}
        for (name, shape), kernel, size in zip(shapes.items(), ("W_q", "W_k", "W_v"), self._sizes, strict=True):
            check_last_axis(name, shape, kernel, size)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        check_not_cache(keys_shape)
        check_not_none(keys=keys_shape, values=values_shape)
        shapes = tuple(queries_shape), tuple(keys_shape), tuple(values_shape)
        self.check_shapes(*shapes)
        size = shapes[0][-1]
        if self.key_dim is None and size % self.num_heads:
            raise ValueError(
                "`num_heads` must divide Dq, the last axis of `queries`, unless `key_dim` is given. "
                f"Received: num_heads={self.num_heads}, queries shape {shapes[0]}. "
                "Pass `key_dim`, the size of one head, or another `num_heads`."
            )
        key_dim = self.key_dim or size // self.num_heads
        value_dim = self.value_dim or key_dim
        self._sizes = tuple(shape[-1] for shape in shapes)
        self.W_q = self._build_projection("W_q", self.num_heads * key_dim, shapes[0])
        self.W_k = self._build_projection("W_k", self._kv_heads * key_dim, shapes[1])
        self.W_v = self._build_projection("W_v", self._kv_heads * value_dim, shapes[2])
        self.W_o = self._build_projection("W_o", self.output_dim or size, (*shapes[0][:-1], self.num_heads * value_dim))
        sizes = (key_dim, key_dim, value_dim)
        heads = [(*shape[:-2], self.num_heads, shape[-2], size) for shape, size in zip(shapes, sizes, strict=True)]
        if not self.attention.built:
            self.attention.build(*heads)
        if isinstance(self.process_heads, keras.layers.Layer) and not self.process_heads.built:
            # A symbolic call creates its weights, which must exist before a saved model is loaded.
            for role, shape in zip(ROLES, heads, strict=True):
                self._process(keras.KerasTensor(shape, self.compute_dtype), role, 0)

    def _build_projection(self, name: str, units: int, shape: Shape) -> Any:
        dense = make_projection(self, name, units, use_bias=self.use_bias, bias_initializer=self.bias_initializer)
        try:
            dense.build(shape)
        except ValueError as error:
            # The message of this error of JAX does not name the layer.
            if type(error).__name__ != "IndivisibleError":
                raise
            raise ValueError(
                f"Layer `{self.name}` cannot divide the kernel ({shape[-1]}, {units}) of `{name}` evenly on devices. "
                f"Received: num_heads={self.num_heads}, num_kv_heads={self._kv_heads}, a mesh of devices "
                f"{keras.distribution.distribution().device_mesh.shape}. Let each device hold all of `{name}`, or "
                "choose numbers of heads that are multiples of the number of devices."
            ) from error
        return dense

    def _process(self, heads: Tensor, role: str, offset: Any) -> Tensor:
        """Call `process_heads`, if any, on heads `B + (H, T, K)`, and check its result."""
        if self.process_heads is None:
            return heads
        processed = self.process_heads(heads, role=role, offset=offset)
        if not hasattr(processed, "shape") or not keras.backend.is_float_dtype(dtype_of(processed)):
            received = f"dtype {dtype_of(processed)}" if hasattr(processed, "shape") else f"{type(processed).__name__}"
            raise TypeError(
                "`process_heads` must return heads: floats of the shape of its argument. "
                f"Received: {received} for the {role}."
            )
        if not shapes_agree(shape_of(processed), shape_of(heads)):
            raise ValueError(
                f"`process_heads` must return heads of the shape of its argument, here {shape_of(heads)}. "
                f"Received: shape {shape_of(processed)} for the {role}."
            )
        return processed

    def _project_heads(self, role: str, features: Tensor, offset: Any) -> Tensor:
        """Return projected and processed heads, `B + (H, T, K)` of queries, or `B + (G, T, K)` of keys or values."""
        dense = (self.W_q, self.W_k, self.W_v)[ROLES.index(role)]
        num_heads = self.num_heads if role == "queries" else self._kv_heads
        return self._process(split_heads(apply_dense(dense, features), num_heads), role, offset)

    def _project_joined_heads(self, role: str, features: Tensor, offset: Any) -> Tensor:
        """Return projected and processed heads joined on the last axis, `B + (T, H K)` or `B + (T, G K)`."""
        if self.process_heads is None:
            return apply_dense((self.W_q, self.W_k, self.W_v)[ROLES.index(role)], features)
        return join_heads(self._project_heads(role, features, offset))

    def _project_keys(self, keys: Tensor, offset: Any) -> Tensor:
        return self.attention.precompute(self._project_heads("keys", keys, offset))[KEYS_ENTRY]

    def _project_values(self, values: Tensor, offset: Any) -> Tensor:
        return self._project_heads("values", values, offset)

    def _time_axis(self, rank: int) -> int:
        return rank - 1

    def _project_output(self, pooled: Tensor, has_key: Tensor | None) -> Tensor:
        """Project pooled heads `B + (Tq, H V)` to `B + (Tq, Do)`, with zeros for fully masked queries."""
        output = apply_dense(self.W_o, pooled)
        # Without this selection the output of fully masked queries is the bias of W_o.
        return output if has_key is None else zero_masked(output, has_key)

    def _repeat_keys(self, num_heads: int, keys: KeyInput) -> Any:
        """Return projected keys `B + (num_heads, Tk, K)` for the scoring layer, as a cache if the keys are cached."""
        if keys.projected:
            # A copy has no implicit mask; the mask of the cache is part of the mask of the call.
            tensor = keys.tensor if get_keras_mask(keys.tensor) is None else ops.copy(keys.tensor)
            return {KEYS_ENTRY: self._repeat_kv_heads(num_heads, tensor)}
        return self._repeat_kv_heads(num_heads, self._project_heads("keys", keys.tensor, 0))

    def _repeat_values(self, num_heads: int, call: AttentionCall) -> Tensor:
        """Return projected values `B + (num_heads, Tk, V)`."""
        heads = call.values if call.keys.values is not None else self._project_heads("values", call.values, 0)
        return self._repeat_kv_heads(num_heads, heads)

    def _repeat_kv_heads(self, num_heads: int, heads: Tensor) -> Tensor:
        return repeat_heads(heads, num_heads // self._kv_heads)

    def _check_shapes(self, queries_shape: Shape, keys: KeyInput, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        keys_shape = keys.tensor
        if not keys.projected:
            self.check_shapes(queries_shape, keys_shape, values_shape)
            return queries_shape, keys_shape, values_shape
        check_projected_size(keys_shape, self._kv_heads, axis=-3)
        # Validate cached heads with the shape of the keys that they were projected from.
        keys_shape = (*keys_shape[:-3], keys_shape[-2], self._sizes[1])
        if keys.values is not None:
            check_projected_size(values_shape, self._kv_heads, axis=-3)
            units = getattr(self.W_v, "units", None)  # a subclass may replace the Dense layer
            check_projected_size(values_shape, units and units // self._kv_heads)
            values_shape = (*values_shape[:-3], values_shape[-2], self._sizes[2])
        self.check_shapes(queries_shape, keys_shape, values_shape)
        return queries_shape, keys_shape, values_shape


def check_process_heads(process_heads: Any) -> None:
    """Raise TypeError unless `process_heads` is None or accepts the keywords `role` and `offset`."""
    if process_heads is None:
        return
    function = process_heads.call if isinstance(process_heads, keras.layers.Layer) else process_heads
    parameters = inspect.signature(function).parameters if callable(function) else {}
    accepts_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    if not (accepts_any or {"role", "offset"} <= set(parameters)):
        raise TypeError(
            "`process_heads` must be a layer or a function, called as `process_heads(heads, role=role, offset=n)`. "
            f"Received: {type(process_heads).__name__}, which takes {list(parameters) or 'nothing'}. "
            "Wrap it in a function that ignores unused arguments."
        )
