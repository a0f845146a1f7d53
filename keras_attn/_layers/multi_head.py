"""Multi-head attention with any scoring layer."""

from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import infer_scores_shape
from .._checks.constructor_arguments import check_flag, check_positive_integer
from .._keras.private_api import can_skip_layer_call
from .._keras.projections import kernel_config, set_kernel_options
from .._maths.head_masks import HeadMasks, Visibility, expand_pairs, has_visible_key, make_head_masks, visible_queries
from .._maths.heads import fold_pairwise_groups, fold_query_groups, join_heads, unfold_query_groups
from .._maths.masks import all_rows_visible, zero_masked
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.composite import current_evaluator, make_composite
from .._shapes import shape_of
from .._states.cache import KeyInput
from .._types import BandMask, Heads, Masks, Shape, Tensor
from .head_projections import HeadProjections, check_process_heads


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(HeadProjections):
    """Multi-head attention with any scoring layer.

    `output = W_o [head_1, ..., head_H]`, `head_h = attention(W_q,h queries, W_k,h keys, W_v,h values)`

    The projections are `keras.layers.Dense` layers with all heads on the last axis: `W_q` (Dq, H K), `W_k` (Dk, G K),
    `W_v` (Dv, G V) and `W_o` (H V, Do). All heads share the weights of the scoring layer.

    Args:
        attention: The scoring layer, an `AttentionPooling`. Its dropout is the dropout of the weights. Two layers
            cannot share a scoring layer that has weights, since Keras cannot load such a model.
        num_heads: H, the number of heads.
        key_dim: K, the size of a query and a key in one head; None for `Dq / H`.
        value_dim: V, the size of a value in one head; None for K.
        output_dim: Do, the size of the output; None for Dq.
        num_kv_heads: G, the number of heads of keys and values, each for `H / G` query heads; G divides H. None for H.
        process_heads: Layer or function that transforms projected heads before the attention, such as
            `RotaryEmbedding`; or None. Called as `process_heads(heads, role=role, offset=offset)`, with heads
            `B + (H, T, K)`, the role `"queries"`, `"keys"` or `"values"`, and the first position: an integer, a scalar
            tensor or integers `B`. It returns floats of the same shape, and must treat positions independently. Like
            `attention`, it must not be shared with another layer.
        use_bias: True to give the four projections a bias.
        kernel_initializer: Initializer of the four kernels.
        bias_initializer: Initializer of the four biases.
        kernel_regularizer: Regularizer of the four kernels, or None.
        kernel_constraint: Constraint on the four kernels, or None.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        attention_mask: Booleans that broadcast to `B + (Tq, Tk)`, for all heads, or with one more axis to
            `B + (H, Tq, Tk)`.
        score_bias: Floats that broadcast in the same way, added to the scores of all heads or of each head.
        Others: those of `AttentionPooling`.

    Returns:
        Output `B + (Tq, Do)`. With `return_attention_scores=True`, a pair of the output and the weights
        `B + (H, Tq, Tk)`.

    Masking:
        As in `AttentionPooling`. The output of queries that are fully masked in all heads is zero, without a bias.

    Raises: those of `AttentionPooling`.

    Example:
        >>> layer = MultiHeadAttention(DotProductAttention(dropout=0.1), num_heads=4)
        >>> output, weights = layer(x, x, x, valid_lens, return_attention_scores=True)

    Source: Vaswani et al. 2017, section 3.2.2; groups: Ainslie et al. 2023.
    """

    def __init__(
        self,
        attention: AttentionPooling,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        num_kv_heads: int | None = None,
        *,
        process_heads: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(attention, AttentionPooling):
            raise TypeError(
                "`attention` must be a layer that scores, such as `DotProductAttention()`. "
                f"Received: attention of type {type(attention).__name__}."
            )
        sizes = {"key_dim": key_dim, "value_dim": value_dim, "output_dim": output_dim, "num_kv_heads": num_kv_heads}
        sizes = {name: None if size is None else check_positive_integer(name, size) for name, size in sizes.items()}
        self.attention = attention
        self.num_heads = check_positive_integer("num_heads", num_heads)
        self.key_dim, self.value_dim = sizes["key_dim"], sizes["value_dim"]
        self.output_dim, self.num_kv_heads = sizes["output_dim"], sizes["num_kv_heads"]
        if self.num_heads % (self.num_kv_heads or 1):
            raise ValueError(
                "`num_kv_heads` must divide `num_heads`: each head of keys serves the same number of query heads. "
                f"Received: num_heads={num_heads}, num_kv_heads={num_kv_heads}."
            )
        check_process_heads(process_heads)
        self.process_heads = process_heads
        self.use_bias = check_flag("use_bias", use_bias)
        set_kernel_options(self, kernel_initializer, kernel_regularizer, kernel_constraint)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def _attend(self, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
        lowered = self._evaluate_composite(call)
        if lowered is not None:
            return lowered
        rank = len(call.queries.shape)
        num_queries, num_keys = _num_queries_and_keys(call)
        bias = None if call.bias is None else expand_pairs(call.bias, rank)
        masks, band = HeadMasks(), call.band
        if not all_rows_visible(call.masks, call.queries, call.keys.tensor):
            masks = make_head_masks(call.masks, call.band, num_queries, num_keys, rank)
            band = BandMask()  # merged into the mask
        zeroed = _zero_masked_call(call, masks.visibility)._replace(bias=bias, band=band)
        pooled, weights = self._attend_in_heads(zeroed, masks, num_queries)
        has_key = has_visible_key(None if masks.visibility is None else masks.visibility.queries, num_keys)
        return self._project_output(join_heads(pooled), has_key), weights

    def _attend_in_heads(self, call: AttentionCall, masks: HeadMasks, num_queries: Any) -> tuple[Tensor, Tensor | None]:
        """Return pooled heads `B + (H, Tq, V)` and weights `B + (H, Tq, Tk)` or None; the bias has a head axis."""
        queries = self._project_heads("queries", call.queries, call.offset)
        # Query heads of a group are folded into one head. Otherwise every decoding step would repeat the cached keys.
        shares_keys = call.keys.projected and call.band == BandMask() and self._kv_heads < self.num_heads
        num_heads = self._kv_heads if shares_keys else self.num_heads
        mask, bias = masks.mask, call.bias
        if shares_keys:
            queries = fold_query_groups(queries, num_heads)
            mask = fold_pairwise_groups(mask, self.num_heads, num_heads, num_queries)
            bias = fold_pairwise_groups(bias, self.num_heads, num_heads, num_queries)
        keys = self._repeat_keys(num_heads, call.keys)
        values = self._repeat_values(num_heads, call)
        head_call = AttentionCall(queries, keys, values, band=call.band, offset=0, bias=bias)
        head_call = head_call._replace(returns_weights=call.returns_weights, training=call.training)
        pooled, weights = self._call_scoring_layer(head_call, masks._replace(mask=mask))
        if shares_keys:
            pooled = unfold_query_groups(pooled, self.num_heads)
            weights = None if weights is None else unfold_query_groups(weights, self.num_heads)
        # The dtype of the scoring layer may differ.
        return pooled, None if weights is None else ops.cast(weights, self.compute_dtype)

    def _call_scoring_layer(self, call: AttentionCall, head_masks: HeadMasks) -> tuple[Tensor, Tensor | None]:
        """Call the scoring layer on heads; return output `B + (H, Tq, V)` and weights `B + (H, Tq, Tk)` or None."""
        attention, lengths = self.attention, head_masks.lengths
        differs_by_head = head_masks.mask is not None and shape_of(head_masks.mask)[-3:-2] not in ((), (1,))
        skip_zeroing = attention._adds_only_scoring and not (differs_by_head or isinstance(call.keys, dict))
        if skip_zeroing and can_skip_layer_call(attention, call.queries, call.keys, call.values):
            masks = Masks(keys_mask=head_masks.length_mask, attention_mask=head_masks.mask)
            result: tuple[Tensor, Tensor | None] = attention._attend(
                call._replace(keys=KeyInput(call.keys), masks=masks, skip_zeroing=True)
            )
            return result
        pooled = attention(
            call.queries,
            call.keys,
            call.values,
            None if lengths is None else ops.repeat(ops.expand_dims(lengths, -1), call.queries.shape[-3], axis=-1),
            score_bias=call.bias,
            attention_mask=head_masks.mask,
            use_causal_mask=call.band.causal,
            window=call.band.window,
            return_attention_scores=call.returns_weights,
            training=call.training,
            **({"_skip_zeroing": True} if skip_zeroing else {}),
        )
        return pooled if call.returns_weights else (pooled, None)

    def _evaluate_composite(self, call: AttentionCall) -> tuple[Tensor, Tensor | None] | None:
        """Return output and weights from the evaluator of an exporter; None without an evaluator or composite."""
        evaluate, attention = current_evaluator(), self.attention
        if evaluate is None or call.keys.projected or not attention._adds_only_scoring:
            return None
        if attention._applies_dropout(call) or attention.compute_dtype != self.compute_dtype:
            return None
        rank, sizes = len(call.queries.shape), _num_queries_and_keys(call)
        has_key = has_visible_key(visible_queries(call.masks, call.band, *sizes, rank), sizes[1])
        if evaluate.needs_zeroed_padding:
            call = _zero_masked_call(call, make_head_masks(call.masks, call.band, *sizes, rank).visibility)
        head_call = call._replace(
            queries=self._project_joined_heads("queries", call.queries, call.offset),
            keys=KeyInput(self._project_joined_heads("keys", call.keys.tensor, 0)),
            values=self._project_joined_heads("values", call.values, 0),
            heads=Heads(self.num_heads, self._kv_heads),
        )
        scoring = attention._scoring(head_call)
        if scoring.name is None:
            return None
        composite = make_composite(head_call, scoring, attention, attention.normalizer)
        pooled, weights = evaluate(composite, call.returns_weights)
        if weights is not None and call.masks.queries_mask is not None:
            weights = zero_masked(weights, ops.expand_dims(call.masks.queries_mask, -2))
        return self._project_output(pooled, has_key), weights

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        *batch, num_queries, num_keys = infer_scores_shape(queries_shape, keys_shape, values_shape)
        size = self.output_dim or queries_shape[-1]
        return (*batch, num_queries, size), (*batch, self.num_heads, num_queries, num_keys)

    def get_config(self) -> dict[str, Any]:
        attention = keras.saving.serialize_keras_object(self.attention)
        attention.pop("build_config", None)  # this layer builds it
        process_heads = keras.saving.serialize_keras_object(self.process_heads)
        if isinstance(process_heads, dict):
            process_heads.pop("build_config", None)
        return {
            **super().get_config(),
            "attention": attention,
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "num_kv_heads": self.num_kv_heads,
            "process_heads": process_heads,
            "use_bias": self.use_bias,
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            **kernel_config(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MultiHeadAttention":
        """Return a layer with the arguments of `get_config`."""
        layers = {
            name: keras.saving.deserialize_keras_object(config.get(name)) for name in ("attention", "process_heads")
        }
        return cls(**{**config, **layers})


def _num_queries_and_keys(call: AttentionCall) -> tuple[Any, Any]:
    """Return Tq and Tk as integers or scalar tensors."""
    return ops.shape(call.queries)[-2], ops.shape(call.keys.tensor)[-2]


def _zero_masked_call(call: AttentionCall, visibility: Visibility | None) -> AttentionCall:
    """Zero fully masked queries, keys and values before they are projected; cached keys and values stay."""
    if visibility is None:
        return call
    keys, values = call.keys, call.values
    is_shared = keys.tensor is values
    if keys.values is None:
        values = zero_masked(values, visibility.keys)
    if not keys.projected:
        keys = keys._replace(tensor=values if is_shared else zero_masked(keys.tensor, visibility.keys))
    return call._replace(queries=zero_masked(call.queries, visibility.queries), keys=keys, values=values)
