"""What every attention layer shares: the call, its checks, and the shapes and masks of what comes out."""

from typing import Any

import keras
from keras import ops

from .._checks.arguments import check_switch, check_window
from .._checks.offset import check_offset
from .._checks.tensors import check_given, check_masks, check_real, check_segment_ids
from .._keras.placeholders import as_tensors
from .._keras.private import VariedOutputs, set_keras_mask
from .._keras.projections import policy_with_quantized_sublayers
from .._maths.masks import intersect
from .._maths.scores import bounded
from .._states.precompute import Precomputing
from .._states.state import check_length, have_lost_steps, nan_where, unpacked, values_of
from .._tensors import Masks, Pairs, Shape, Tensor, as_tensor, shape_of
from .call import AttentionCall, with_all_masks


class AttentionLayer(VariedOutputs, Precomputing):
    """A layer that is called with queries, keys and values, and masks of every kind.

    A subclass gives `_attend`, `_project`, `_checked_shapes` and `_output_shapes`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def _attend(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        """The output, and the weights if they are wanted, from tensors of the layer's dtype."""
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
        segment_ids: Any = None,
        use_causal_mask: bool = False,
        window: Any = None,
        offset: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
        _only_state: Any = False,
        _is_clean: bool = False,
    ) -> Any:
        """Pools the values; or gives a state of keys and values alone, for `precompute` and `append`."""
        return self._answer(
            queries,
            keys,
            values,
            valid_lens,
            score_bias=score_bias,
            attention_mask=attention_mask,
            segment_ids=segment_ids,
            use_causal_mask=use_causal_mask,
            window=window,
            offset=offset,
            return_attention_scores=return_attention_scores,
            training=training,
            queries_mask=queries_mask,
            keys_mask=keys_mask,
            values_mask=values_mask,
            _only_state=_only_state,
            _is_clean=_is_clean,
        )

    def _answer(
        self, queries: Tensor, keys: Any, values: Tensor | None, *lens: Any, _only_state: Any = False, **options: Any
    ) -> Any:
        """What `call` returns, of the same arguments."""
        if _only_state:
            return self._state_of(keys, values, _only_state, _mask_of_state(options, _only_state))
        call, _ = self._checked(queries, keys, values, *lens, **options)
        rank = len(call.queries.shape)
        num_keys = ops.shape(call.keys.tensor)[self._time_axis(rank) if call.keys.projected else -2]
        call = with_all_masks(self._cast(call), num_keys)
        output, weights = self._attend(call)
        lost = have_lost_steps(call.keys, self._time_axis(rank))
        if lost is not None:
            output = nan_where(lost, call.masks.queries_mask, output)
            weights = None if weights is None else nan_where(lost, call.masks.queries_mask, weights)
        _carry_mask(output, call.masks.queries_mask)
        return (output, weights) if call.returns_weights else output

    def compute_output_spec(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor | None = None,
        *lens: Any,
        _only_state: Any = False,
        **options: Any,
    ) -> Any:
        """The shape and dtype of what `call` returns."""
        if _only_state:
            return self._spec_of_state(queries, keys, values, _only_state, _mask_of_state(options, _only_state))
        call, shapes = self._checked(queries, keys, values, *lens, **options)
        output, weights = (keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)
        _carry_mask(output, call.masks.queries_mask)
        return (output, weights) if call.returns_weights else output

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
        valid_lens: Any = None,
        *,
        score_bias: Any = None,
        attention_mask: Any = None,
        segment_ids: Any = None,
        use_causal_mask: Any = False,
        window: Any = None,
        offset: Any = None,
        return_attention_scores: Any = False,
        training: bool | None = None,
        queries_mask: Any = None,
        keys_mask: Any = None,
        values_mask: Any = None,
        _is_clean: bool = False,
    ) -> tuple[AttentionCall, tuple[Shape, Shape]]:
        """Checks what a call, symbolic or not, was given; returns it, and the shapes of output and weights."""
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
        segments = None if segment_ids is None else check_segment_ids(segment_ids, *shapes[:2])
        if offset is not None and not (isinstance(offset, int) and offset == 0):
            offset = check_offset(offset, "queries", output_shape[:-2])
        returns_weights = check_switch("return_attention_scores", return_attention_scores)
        call = AttentionCall(queries, state, values, masks, pairs, offset, segments, bias, returns_weights, training)
        return call._replace(is_clean=_is_clean), (output_shape, weights_shape)

    def _cast(self, call: AttentionCall) -> AttentionCall:
        """The call in the dtype of the layer."""
        queries, keys, values = (ops.cast(x, self.compute_dtype) for x in (call.queries, call.keys.tensor, call.values))
        bias = None if call.bias is None else bounded(call.bias, self.compute_dtype)
        return call._replace(queries=queries, keys=call.keys._replace(tensor=keys), values=values, bias=bias)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        config: dict[str, Any] = super().get_config()
        policies = policy_with_quantized_sublayers(self)
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}


def _mask_of_state(options: dict[str, Any], only_state: Any) -> Any:
    """Which steps of a state take part, by the masks of what it is made of: values only if it holds them."""
    keys_mask, values_mask = options.get("keys_mask"), options.get("values_mask")
    return keys_mask if only_state is True else intersect(keys_mask, values_mask)


def _carry_mask(output: Tensor, queries_mask: Tensor | None) -> None:
    """Lets the output carry a `queries_mask` that was passed explicitly: Keras passes on the one of the first input."""
    if queries_mask is not None:
        set_keras_mask(output, queries_mask)
