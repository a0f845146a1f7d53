"""Base class of attention layers: call signature, validation, output shapes and masks."""

import inspect
from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_masks, check_not_complex, check_not_none, check_offset, check_segment_ids
from .._checks.constructor_arguments import check_call_flag, check_window
from .._keras.build_placeholders import convert_masks
from .._keras.call_errors import CallErrorMixin
from .._keras.private_api import LargestOutputMixin, set_keras_mask
from .._keras.projections import make_policy_map
from .._maths.masks import intersect
from .._maths.scores import clip_score_bias
from .._shapes import as_tensor, shape_of
from .._states.cache import check_cache_length, has_overflowed, nan_if_overflowed, parse_keys, select_values
from .._states.cache_layer import KVCacheLayer
from .._types import BandMask, Masks, Shape, Tensor
from .attention_call import AttentionCall, merge_masks


class AttentionLayer(CallErrorMixin, LargestOutputMixin, KVCacheLayer):
    """Base layer; a subclass defines `_attend`, `_project_keys`, `_check_shapes` and `_output_shapes`."""

    CALL_EXAMPLE = "`layer(queries, keys, values)`, and as `layer(x, x, x)` where all are one sequence"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def _attend(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        """Return the output, and the weights or None, of a validated call in the layer's dtype."""
        raise NotImplementedError

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        """Return the shapes of the output and the weights from shapes `B + (T, D)`."""
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
        _only_spec: bool = False,
        _skip_zeroing: bool = False,
        _previous_weights: Any = None,
    ) -> Any:
        """Pool the values; with `_only_state`, return a key/value cache, for `precompute` and `append`."""
        # Saved functional models contain `_only_state` with its values, so neither may be renamed.
        masks = Masks(valid_lens, attention_mask, queries_mask, keys_mask, values_mask)
        band = BandMask(use_causal_mask, window)
        call = AttentionCall(queries, keys, values, masks, band, offset, segment_ids, score_bias)
        call = call._replace(returns_weights=return_attention_scores, training=training, skip_zeroing=_skip_zeroing)
        return self._call_or_infer_spec(call._replace(previous_weights=_previous_weights), _only_state, _only_spec)

    def _call_or_infer_spec(self, call: AttentionCall, only_state: Any, only_spec: bool) -> Any:
        """Validate a call and return its result, or only shapes and dtypes if `only_spec` is True."""
        if only_state:
            cache_inputs = call.keys, call.values, only_state, _merge_cache_mask(call.masks, only_state)
            return (
                self._compute_cache_spec(call.queries, *cache_inputs) if only_spec else self._build_cache(*cache_inputs)
            )
        call, shapes = self._validate_call(call)
        if only_spec:
            output, weights = (keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)
        else:
            output, weights = self._run_call(call)
        if call.masks.queries_mask is not None:
            # Keras propagates only the implicit mask of the first input, not a mask passed as an argument.
            set_keras_mask(output, call.masks.queries_mask)
        return (output, weights) if call.returns_weights else output

    def _run_call(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        """Compute output and weights of a validated call; NaN in examples whose cache has overflowed."""
        rank = len(call.queries.shape)
        num_keys = ops.shape(call.keys.tensor)[self._time_axis(rank) if call.keys.projected else -2]
        call = merge_masks(self._cast_call(call), num_keys)
        output, weights = self._attend(call)
        overflowed = has_overflowed(call.keys, self._time_axis(rank))
        if overflowed is not None:
            output = nan_if_overflowed(overflowed, call.masks.queries_mask, output)
            weights = None if weights is None else nan_if_overflowed(overflowed, call.masks.queries_mask, weights)
        return output, weights

    def compute_output_spec(self, *args: Any, **options: Any) -> Any:
        return AttentionLayer.call(self, *args, **options, _only_spec=True)

    def compute_output_shape(
        self, queries_shape: Any, keys_shape: Any, values_shape: Any = None, *, return_attention_scores: bool = False
    ) -> Any:
        """Return the shape of the output, and with `return_attention_scores` also the shape of the weights."""
        keys = parse_keys(keys_shape, None)
        values_shape = keys.values if values_shape is None else values_shape
        shapes = self._check_shapes(tuple(queries_shape), keys._replace(tensor=tuple(keys.tensor)), tuple(values_shape))
        output_shape, weights_shape = self._output_shapes(*shapes)
        return (output_shape, weights_shape) if return_attention_scores else output_shape

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return previous_mask  # the mask of the queries

    def _validate_call(self, raw_call: AttentionCall) -> tuple[AttentionCall, tuple[Shape, Shape]]:
        """Validate a call with symbolic or real tensors; return it with the shapes of output and weights."""
        keys = parse_keys(raw_call.keys, raw_call.masks.keys_mask)
        values = select_values(keys, raw_call.values)
        band = BandMask(check_call_flag("use_causal_mask", raw_call.band.causal), check_window(raw_call.band.window))
        check_not_none(queries=raw_call.queries, keys=keys.tensor, values=values)
        check_not_complex(queries=raw_call.queries, keys=keys.tensor, values=values)
        shapes = self._check_shapes(
            shape_of(raw_call.queries), keys._replace(tensor=shape_of(keys.tensor)), shape_of(values)
        )
        output_shape, weights_shape = self._output_shapes(*shapes)
        if keys.length is not None:
            check_cache_length(keys.length, output_shape[:-2])
        masks = convert_masks(raw_call.masks._replace(keys_mask=keys.mask))
        bias = None if raw_call.bias is None else as_tensor(raw_call.bias)
        check_masks(masks, bias, *shapes, weights_shape)
        segment_ids, offset = raw_call.segment_ids, raw_call.offset
        if segment_ids is not None:
            segment_ids = check_segment_ids(segment_ids, *shapes[:2])
        if offset is not None and not (isinstance(offset, int) and offset == 0):
            offset = check_offset(offset, "queries", output_shape[:-2])
        returns_weights = check_call_flag("return_attention_scores", raw_call.returns_weights)
        call = raw_call._replace(keys=keys, values=values, masks=masks, band=band, returns_weights=returns_weights)
        return call._replace(offset=offset, segment_ids=segment_ids, bias=bias), (output_shape, weights_shape)

    def _cast_call(self, call: AttentionCall) -> AttentionCall:
        """Cast queries, keys, values and bias to the compute dtype."""
        queries, keys, values = (ops.cast(x, self.compute_dtype) for x in (call.queries, call.keys.tensor, call.values))
        bias = None if call.bias is None else clip_score_bias(call.bias, self.compute_dtype)
        return call._replace(queries=queries, keys=call.keys._replace(tensor=keys), values=values, bias=bias)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        policies = make_policy_map(self)
        return config if policies is None else {**config, "dtype": keras.dtype_policies.serialize(policies)}


def add_keyword(name: str, call: Any) -> Any:
    """Decorate the `call` of a subclass: give it the signature of `AttentionLayer.call` plus one keyword."""
    # Keras reads the signature to match arguments, to build the layer and to fill implicit masks.
    signature = inspect.signature(AttentionLayer.call)
    parameters = [*signature.parameters.values()]
    keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)
    keyword_start = next(index for index, parameter in enumerate(parameters) if parameter.kind is keyword.kind)
    call.__signature__ = signature.replace(
        parameters=[*parameters[:keyword_start], keyword, *parameters[keyword_start:]]
    )
    return call


def _merge_cache_mask(masks: Masks, only_state: Any) -> Any:
    """Return the mask `B + (Tk,)` of a cache: the mask of the keys, and of the values if the cache has values."""
    return masks.keys_mask if only_state is True else intersect(masks.keys_mask, masks.values_mask)
