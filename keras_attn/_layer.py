"""What every attention layer shares: the call, its checks, and the shapes and masks of what comes out."""

import contextlib
from typing import Any

import keras
from keras import ops

from ._arguments import check_window
from ._checks import check_given, check_masks, check_real, shape_of
from ._keys_state import PROJECTED, Keys, check_built, unpacked
from ._placeholders import as_tensors
from ._types import Masks, Pairs, Shape, Tensor


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
        # A call of this layer, so that a functional model knows whose weights they are.
        state: dict[str, Tensor] = self(keys, keys, keys, only_precompute=True)
        return state

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
        only_precompute: bool = False,
    ) -> Any:
        """Pools the values."""
        if only_precompute:
            self._check_keys(keys)
            return {PROJECTED: self._project(ops.cast(keys, self.compute_dtype))}
        given = unpacked(keys, keys_mask)
        masks = Masks(valid_lens, attention_mask, queries_mask, given.mask, values_mask)
        masks = self._checked_masks(queries, given, values, masks)
        queries, keys, values = (ops.cast(x, self.compute_dtype) for x in (queries, given.tensor, values))
        output, weights = self._attend(
            queries,
            given._replace(tensor=keys),
            values,
            masks,
            Pairs(use_causal_mask, check_window(window)),
            return_attention_scores=return_attention_scores,
            training=training,
        )
        _carry_mask(output, masks.queries_mask)
        return (output, weights) if return_attention_scores else output

    @property
    def output(self) -> Any:
        """The outputs of the call with the most of them: Keras counts those of the first, which may be `precompute`."""
        return max((node.output_tensors for node in self._inbound_nodes), key=len, default=None)

    def _check_keys(self, keys: Tensor) -> None:
        check_given(keys=keys)
        check_real(keys=keys)
        shape = shape_of(keys)
        if len(shape) < 3:
            raise ValueError(
                "`keys` must have at least 3 axes: one or more batch axes, then (Tk, Dk). "
                f"Received: keys shape {shape}. Add the axis that is missing."
            )
        self._checked_shapes((*shape[:-2], None, None), Keys(shape, None, False), (*shape[:-1], None))

    def _checked_masks(self, queries: Tensor, keys: Keys, values: Tensor, masks: Masks) -> Masks:
        check_given(queries=queries, keys=keys.tensor, values=values)
        check_real(queries=queries, keys=keys.tensor, values=values)
        shapes = self._checked_shapes(shape_of(queries), keys._replace(tensor=shape_of(keys.tensor)), shape_of(values))
        masks = as_tensors(masks)
        check_masks(masks, *shapes, self._output_shapes(*shapes)[1])
        return masks

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the output: that of the queries."""
        return previous_mask

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

    def compute_output_spec(
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
        only_precompute: bool = False,
    ) -> Any:
        """The shape and dtype of what `call` returns."""
        if only_precompute:
            self._check_keys(keys)
            # that of an operation, which traces `call`
            return keras.Operation.compute_output_spec(self, queries, keys, values, only_precompute=True)
        check_window(window)
        given = unpacked(keys, keys_mask)
        masks = Masks(valid_lens, attention_mask, queries_mask, given.mask, values_mask)
        masks = self._checked_masks(queries, given, values, masks)
        shapes = self._checked_shapes(
            shape_of(queries), given._replace(tensor=shape_of(given.tensor)), shape_of(values)
        )
        output, weights = (keras.KerasTensor(s, dtype=self.compute_dtype) for s in self._output_shapes(*shapes))
        _carry_mask(output, masks.queries_mask)
        return (output, weights) if return_attention_scores else output


def _carry_mask(output: Tensor, queries_mask: Tensor | None) -> None:
    """Lets the output carry a `queries_mask` that was passed explicitly.

    Keras itself passes on only the mask that the first input carries. A JAX array takes no attributes: there the
    output carries that mask alone.
    """
    if queries_mask is not None:
        with contextlib.suppress(AttributeError):
            output._keras_mask = queries_mask
