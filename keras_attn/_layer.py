"""What every attention layer shares: the call, its checks, and the shapes and masks of what comes out."""

from typing import Any, NamedTuple

import keras
from keras import ops

from ._arguments import check_switch, check_window
from ._checks import check_given, check_masks, check_real, shape_of
from ._keys_state import PROJECTED, Keys, ZerosLike, check_built, unpacked
from ._placeholders import as_tensors
from ._policies import policy_with_quantized_sublayers
from ._private_keras import set_keras_mask
from ._types import Masks, Pairs, Shape, Tensor


class Given(NamedTuple):
    """What a call was given, all of it checked, and the shapes of what it returns."""

    queries: Tensor
    keys: Keys
    values: Tensor
    masks: Masks
    pairs: Pairs
    output_shape: Shape
    weights_shape: Shape


class AttentionLayer(keras.layers.Layer):
    """A layer that is called with queries, keys and values, and masks of every kind.

    A subclass gives `_attend`, `_project`, `_checked_shapes` and `_output_shapes`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def _attend(
        self,
        queries: Tensor,
        keys: Keys,
        values: Tensor,
        masks: Masks,
        pairs: Pairs,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and the weights, from tensors of the layer's dtype and masks that are checked."""
        raise NotImplementedError

    def _project(self, keys: Tensor) -> Tensor:
        """What depends on keys `B + (Tk, Dk)` alone."""
        raise NotImplementedError

    def _checked_shapes(self, queries_shape: Shape, keys: Keys, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        """Checks three shapes, where `keys.tensor` is one; returns them as `B + (T, D)`."""
        raise NotImplementedError

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        """The shapes of the output and the weights."""
        raise NotImplementedError

    def precompute(self, keys: Tensor) -> dict[str, Tensor]:
        """What depends on keys alone, to be passed in the place of `keys` for as long as they stay the same.

        The answer is that of the plain call. It carries the mask that `keys` carries.

        Args:
            keys: Floats, `B + (Tk, Dk)`. Padding should be finite, unless no gradient is taken through it.

        Returns:
            A dict with the tensor `"projected_keys"`, `B + (Tk, ...)`.

        Raises:
            ValueError: If the layer is not built.

        Example:
            >>> state = layer.precompute(keys)
            >>> for query in steps:
            ...     context = layer(query, state, values, valid_lens)
        """
        check_built(self)
        check_given(keys=keys)
        # A call of this layer, so that a functional model knows whose weights they are. A copy of the model may make it
        # the first call, which builds the layer: then queries and values of the right sizes must be there.
        queries, values = (self._zeros_like(keys, name) for name in ("queries", "values"))
        state: dict[str, Tensor] = self(queries, keys, values, _only_state=True)
        return state

    def _zeros_like(self, keys: Tensor, name: str) -> Tensor:
        """Zeros of the length of the keys and of the size for which the layer was built."""
        shape = (self.get_build_config() or {}).get("shapes_dict", {}).get(f"{name}_shape")
        return keys if shape is None or shape[-1] is None else ZerosLike(shape[-1])(keys)

    def call(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor,
        valid_lens: Any = None,
        *,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        window: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
        _only_state: bool = False,
    ) -> Any:
        """Pools the values; or gives the state of the keys alone, for `precompute`."""
        if _only_state:
            self._check_keys(keys)
            return {PROJECTED: self._project(ops.cast(keys, self.compute_dtype))}
        given = self._checked(
            queries,
            keys,
            values,
            valid_lens,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            window=window,
            queries_mask=queries_mask,
            keys_mask=keys_mask,
            values_mask=values_mask,
        )
        queries, keys, values = (ops.cast(x, self.compute_dtype) for x in (queries, given.keys.tensor, values))
        returns_weights = check_switch("return_attention_scores", return_attention_scores)
        output, weights = self._attend(
            queries,
            given.keys._replace(tensor=keys),
            values,
            given.masks,
            given.pairs,
            return_attention_scores=returns_weights,
            training=training,
        )
        _carry_mask(output, given.masks.queries_mask)
        return (output, weights) if returns_weights else output

    def compute_output_spec(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor,
        valid_lens: Any = None,
        *,
        return_attention_scores: bool = False,
        training: bool | None = None,
        _only_state: bool = False,
        **masking: Any,
    ) -> Any:
        """The shape and dtype of what `call` returns."""
        if _only_state:
            self._check_keys(keys)
            # that of an operation, which traces `call`
            return keras.Operation.compute_output_spec(self, queries, keys, values, _only_state=True)
        given = self._checked(queries, keys, values, valid_lens, **masking)
        returns_weights = check_switch("return_attention_scores", return_attention_scores)
        shapes = given.output_shape, given.weights_shape
        output, weights = (keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)
        _carry_mask(output, given.masks.queries_mask)
        return (output, weights) if returns_weights else output

    def compute_output_shape(
        self, queries_shape: Any, keys_shape: Any, values_shape: Any, *, return_attention_scores: bool = False
    ) -> Any:
        """The shape of the output, and of the weights when asked for."""
        keys = unpacked(keys_shape, None)
        shapes = self._checked_shapes(
            tuple(queries_shape), keys._replace(tensor=tuple(keys.tensor)), tuple(values_shape)
        )
        output_shape, weights_shape = self._output_shapes(*shapes)
        return (output_shape, weights_shape) if return_attention_scores else output_shape

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the output: that of the queries."""
        return previous_mask

    @property
    def output(self) -> Any:
        """The outputs of the call with the most of them: Keras counts those of the first, which may be `precompute`."""
        return max((node.output_tensors for node in self._inbound_nodes), key=len, default=None)

    def _checked(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor,
        valid_lens: Any,
        *,
        attention_mask: Any = None,
        use_causal_mask: Any = False,
        window: Any = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
    ) -> Given:
        """Checks what a call, symbolic or not, was given."""
        state = unpacked(keys, keys_mask)
        pairs = Pairs(check_switch("use_causal_mask", use_causal_mask), check_window(window))
        check_given(queries=queries, keys=state.tensor, values=values)
        check_real(queries=queries, keys=state.tensor, values=values)
        shapes = self._checked_shapes(
            shape_of(queries), state._replace(tensor=shape_of(state.tensor)), shape_of(values)
        )
        output_shape, weights_shape = self._output_shapes(*shapes)
        masks = as_tensors(Masks(valid_lens, attention_mask, queries_mask, state.mask, values_mask))
        check_masks(masks, *shapes, weights_shape)
        return Given(queries, state, values, masks, pairs, output_shape, weights_shape)

    def _check_keys(self, keys: Tensor) -> None:
        """Checks keys that are given alone."""
        check_given(keys=keys)
        check_real(keys=keys)
        shape = shape_of(keys)
        if len(shape) < 3:
            raise ValueError(
                "`keys` must have at least 3 axes: one or more batch axes, then (Tk, Dk). "
                f"Received: keys shape {shape}. Add the axis that is missing."
            )
        self._checked_shapes((*shape[:-2], None, None), Keys(shape, None, False), (*shape[:-1], None))

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        config: dict[str, Any] = super().get_config()
        policies = policy_with_quantized_sublayers(self)
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}


def _carry_mask(output: Tensor, queries_mask: Tensor | None) -> None:
    """Lets the output carry a `queries_mask` that was passed explicitly: Keras passes on the one of the first input."""
    if queries_mask is not None:
        set_keras_mask(output, queries_mask)
