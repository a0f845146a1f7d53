"""What every attention layer shares: the call, its checks, and the shapes and masks of what comes out."""

from typing import Any, NamedTuple

import keras
from keras import ops

from .._checks.arguments import check_switch, check_window
from .._checks.offset import check_offset
from .._checks.tensors import check_given, check_masks, check_real
from .._keras.placeholders import as_tensors
from .._keras.private import VariedOutputs, set_keras_mask
from .._keras.projections import policy_with_quantized_sublayers
from .._maths.masks import intersect
from .._maths.scores import bounded
from .._states.last_queries import in_masks, position_of_first
from .._states.precompute import Precomputing
from .._states.state import Keys, check_length, have_lost_steps, nan_where, unpacked, values_of
from .._tensors import Masks, Pairs, Shape, Tensor, as_tensor, shape_of


class Given(NamedTuple):
    """What a call was given, all of it checked, and the shapes of what it returns."""

    queries: Tensor
    keys: Keys
    values: Tensor
    masks: Masks
    pairs: Pairs
    offset: Any
    bias: Tensor | None
    output_shape: Shape
    weights_shape: Shape


class AttentionLayer(VariedOutputs, Precomputing):
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
        offset: Any,
        bias: Tensor | None,
        return_attention_scores: bool,
        training: bool | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and the weights, from tensors of the layer's dtype and masks that are checked.

        Args:
            queries: `B + (Tq, Dq)`.
            keys: Those, or projected.
            values: Those, or projected where the keys have projected values.
            masks: What there is of them, with all that the order of positions keeps out where it counts from an offset.
            pairs: Which pairs take part by the order of positions, counted from the first of each.
            offset: Position of the first query: an integer or integers, a scalar or `B`.
            bias: Floats that broadcast to the scores, or None.
            return_attention_scores: Whether the weights are wanted.
            training: Whether dropout acts.
        """
        raise NotImplementedError

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        """The shapes of the output and the weights."""
        raise NotImplementedError

    def call(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor | None = None,
        valid_lens: Any = None,
        *,
        score_bias: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        window: Any = None,
        offset: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
        _only_state: Any = False,
    ) -> Any:
        """Pools the values; or gives a state of keys and values alone, for `precompute` and `append`."""
        if _only_state:
            return self._state_of(keys, values, _only_state, _mask_of_state(keys_mask, values_mask, _only_state))
        given = self._checked(
            queries,
            keys,
            values,
            valid_lens,
            score_bias=score_bias,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            window=window,
            offset=offset,
            queries_mask=queries_mask,
            keys_mask=keys_mask,
            values_mask=values_mask,
        )
        queries, keys, values = (ops.cast(x, self.compute_dtype) for x in (queries, given.keys.tensor, given.values))
        masks, pairs, offset = self._in_masks(given)
        returns_weights = check_switch("return_attention_scores", return_attention_scores)
        output, weights = self._attend(
            queries,
            given.keys._replace(tensor=keys),
            values,
            masks,
            pairs,
            offset=offset,
            bias=None if given.bias is None else bounded(given.bias, self.compute_dtype),
            return_attention_scores=returns_weights,
            training=training,
        )
        lost = have_lost_steps(given.keys, self._time_axis(len(given.queries.shape)))
        if lost is not None:
            output = nan_where(lost, masks.queries_mask, output)
            weights = None if weights is None else nan_where(lost, masks.queries_mask, weights)
        _carry_mask(output, given.masks.queries_mask)
        return (output, weights) if returns_weights else output

    def compute_output_spec(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor | None = None,
        valid_lens: Any = None,
        *,
        return_attention_scores: bool = False,
        training: bool | None = None,
        _only_state: Any = False,
        **masking: Any,
    ) -> Any:
        """The shape and dtype of what `call` returns."""
        if _only_state:
            mask = _mask_of_state(masking.get("keys_mask"), masking.get("values_mask"), _only_state)
            return self._spec_of_state(queries, keys, values, _only_state, mask)
        given = self._checked(queries, keys, values, valid_lens, **masking)
        returns_weights = check_switch("return_attention_scores", return_attention_scores)
        shapes = given.output_shape, given.weights_shape
        output, weights = (keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)
        _carry_mask(output, given.masks.queries_mask)
        return (output, weights) if returns_weights else output

    def compute_output_shape(
        self, queries_shape: Any, keys_shape: Any, values_shape: Any = None, *, return_attention_scores: bool = False
    ) -> Any:
        """The shape of the output, and of the weights when asked for."""
        keys = unpacked(keys_shape, None)
        values_shape = keys.values if values_shape is None else values_shape
        shapes = self._checked_shapes(
            tuple(queries_shape), keys._replace(tensor=tuple(keys.tensor)), tuple(values_shape)
        )
        output_shape, weights_shape = self._output_shapes(*shapes)
        return (output_shape, weights_shape) if return_attention_scores else output_shape

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the output: that of the queries."""
        return previous_mask

    def _checked(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor | None,
        valid_lens: Any,
        *,
        score_bias: Any = None,
        attention_mask: Any = None,
        use_causal_mask: Any = False,
        window: Any = None,
        offset: Any = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
    ) -> Given:
        """Checks what a call, symbolic or not, was given."""
        state = unpacked(keys, keys_mask)
        values = values_of(state, values)
        pairs = Pairs(check_switch("use_causal_mask", use_causal_mask), check_window(window))
        check_given(queries=queries, keys=state.tensor, values=values)
        check_real(queries=queries, keys=state.tensor, values=values)
        shapes = self._checked_shapes(
            shape_of(queries), state._replace(tensor=shape_of(state.tensor)), shape_of(values)
        )
        output_shape, weights_shape = self._output_shapes(*shapes)
        if state.length is not None:
            check_length(state.length, output_shape[:-2])
        masks = as_tensors(Masks(valid_lens, attention_mask, queries_mask, state.mask, values_mask))
        bias = None if score_bias is None else as_tensor(score_bias)
        check_masks(masks, bias, *shapes, weights_shape)
        if offset is not None and not (isinstance(offset, int) and offset == 0):
            offset = check_offset(offset, "queries", output_shape[:-2])
        return Given(queries, state, values, masks, pairs, offset, bias, output_shape, weights_shape)

    def _in_masks(self, given: Given) -> tuple[Masks, Pairs, Any]:
        """The masks, the order of pairs that is not in them, and the position of the first query."""
        num_queries, rank = ops.shape(given.queries)[-2], len(given.queries.shape)
        num_keys = ops.shape(given.keys.tensor)[self._time_axis(rank) if given.keys.projected else -2]
        masks, pairs = in_masks(
            given.masks, given.pairs, given.offset, given.keys, num_queries, num_keys, scores_rank=rank
        )
        return masks, pairs, position_of_first(given.offset, given.keys, num_queries, num_keys)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        config: dict[str, Any] = super().get_config()
        policies = policy_with_quantized_sublayers(self)
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}


def _mask_of_state(keys_mask: Any, values_mask: Any, only_state: Any) -> Any:
    """Which steps of a state take part, by the masks of what it is made of: values only if it holds them."""
    return keys_mask if only_state is True else intersect(keys_mask, values_mask)


def _carry_mask(output: Tensor, queries_mask: Tensor | None) -> None:
    """Lets the output carry a `queries_mask` that was passed explicitly: Keras passes on the one of the first input."""
    if queries_mask is not None:
        set_keras_mask(output, queries_mask)
