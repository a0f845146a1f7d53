"""Multi-head attention over any scoring layer."""

from typing import Any

import keras
from keras import ops

from ._arguments import check_flag, check_positive_integer
from ._checks import check_given, check_last_axis, check_pooling_shapes, scores_shape_of, shape_of
from ._composite import Heads, composite_of, current_evaluator
from ._fused import masked_is_harmless
from ._heads import (
    Seen,
    join_heads,
    project,
    queries_that_see,
    repeat_heads,
    seen_in_some_head,
    sees_some_key,
    split_heads,
    with_heads_axis,
)
from ._keys_state import PROJECTED, Keys, check_projected, refuse_state
from ._layer import AttentionLayer
from ._masking import combine_masks, each_sees_itself, hide, split_lengths
from ._pooling import AttentionPooling
from ._projections import kernel_config, projection, set_kernel_options
from ._types import Masks, Pairs, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class MultiHeadAttention(AttentionLayer):
    """Several attentions side by side, each over projections of its own, with any scoring layer.

    `output = W_o [head_1, ..., head_H]`, `head_h = attention(W_q,h queries, W_k,h keys, W_v,h values)`

    The projections are `keras.layers.Dense` layers with the heads side by side on the last axis: `W_q` (Dq, H K),
    `W_k` (Dk, G K), `W_v` (Dv, G V) and `W_o` (H V, Do). Weights of the scoring layer are shared by all heads.

    Args:
        attention: The scoring layer, an `AttentionPooling`; dropout of the weights is its own. Keras cannot load a
            model in which two layers share one that has weights.
        num_heads: H, the number of heads.
        key_dim: K, the size of a query and a key in one head; None for `Dq / H`.
        value_dim: V, the size of a value in one head; None for K.
        output_dim: Do, the size of the output; None for Dq.
        num_kv_heads: G, the number of heads of keys and values, which divides H: each serves `H / G` heads of queries.
            None for H.
        use_bias: Whether the four projections have a bias.
        kernel_initializer: Initializer of the four kernels.
        bias_initializer: Initializer of the four biases.
        kernel_regularizer: Regularizer of the four kernels, or None.
        kernel_constraint: Constraint on the four kernels, or None.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries, keys, values, valid_lens, use_causal_mask, window, training: Those of `AttentionPooling`.
        queries_mask, keys_mask, values_mask: Likewise.
        attention_mask: Booleans that broadcast to `B + (Tq, Tk)`, for all heads, or with one more axis to
            `B + (H, Tq, Tk)`.
        return_attention_scores: Whether to return the weights as well.

    Returns:
        Output `B + (Tq, Do)`; with `return_attention_scores=True` a pair of it and the weights `B + (H, Tq, Tk)`.

    Masking:
        That of `AttentionPooling`. A query that sees no key in any head gives zeros, without the bias of `W_o`.

    Raises:
        TypeError: If lengths are not integers or a mask is not boolean.
        ValueError: If ranks or sizes do not agree.

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
                "`num_kv_heads` must divide `num_heads`: each head of keys serves as many heads of queries. "
                f"Received: num_heads={num_heads}, num_kv_heads={num_kv_heads}."
            )
        self.use_bias = check_flag("use_bias", use_bias)
        set_kernel_options(
            self,
            kernel_initializer=kernel_initializer,
            kernel_regularizer=kernel_regularizer,
            kernel_constraint=kernel_constraint,
        )
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self._sizes: tuple[int | None, ...] = (None, None, None)

    @property
    def _kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree with each other or with the kernels."""
        check_pooling_shapes(queries_shape, keys_shape, values_shape)
        shapes = {"queries": queries_shape, "keys": keys_shape, "values": values_shape}
        for (name, shape), kernel, size in zip(shapes.items(), ("W_q", "W_k", "W_v"), self._sizes, strict=True):
            check_last_axis(name, shape, kernel, size)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Makes the four projections and builds the scoring layer on one head."""
        refuse_state(keys_shape)
        check_given(keys=keys_shape, values=values_shape)
        shapes = tuple(queries_shape), tuple(keys_shape), tuple(values_shape)
        self.check_shapes(*shapes)
        size = shapes[0][-1]
        if self.key_dim is None and size % self.num_heads:
            raise ValueError(
                "`num_heads` must divide Dq, the last axis of `queries`, unless `key_dim` is given. "
                f"Received: num_heads={self.num_heads}, queries shape {shapes[0]}."
            )
        key_dim = self.key_dim or size // self.num_heads
        value_dim = self.value_dim or key_dim
        self._sizes = tuple(shape[-1] for shape in shapes)
        self.W_q = self._projection("W_q", self.num_heads * key_dim, shapes[0])
        self.W_k = self._projection("W_k", self._kv_heads * key_dim, shapes[1])
        self.W_v = self._projection("W_v", self._kv_heads * value_dim, shapes[2])
        self.W_o = self._projection("W_o", self.output_dim or size, (*shapes[0][:-1], self.num_heads * value_dim))
        sizes = (key_dim, key_dim, value_dim)
        heads = [(*s[:-2], self.num_heads, s[-2], d) for s, d in zip(shapes, sizes, strict=True)]
        if not self.attention.built:
            self.attention.build(*heads)

    def _projection(self, name: str, units: int, shape: Shape) -> Any:
        dense = projection(self, name, units, use_bias=self.use_bias, bias_initializer=self.bias_initializer)
        dense.build(shape)
        return dense

    def _project(self, keys: Tensor) -> Tensor:
        heads = split_heads(project(self.W_k, keys), self._kv_heads)
        return self.attention.precompute(heads)[PROJECTED]

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
        lowered = self._lowered(queries, keys, values, masks, pairs, return_attention_scores, training)
        if lowered is not None:
            return lowered
        rank, num_keys = len(queries.shape), ops.shape(keys.tensor)[-2]
        lengths = mask = seen = None
        if not each_sees_itself(masks, queries, keys.tensor):
            lengths, others = split_lengths(masks, rank)
            mask = combine_masks(with_heads_axis(others, rank), pairs, ops.shape(queries)[-2], num_keys, rank + 1)
            seen = seen_in_some_head(lengths, mask, num_keys, rank)
            pairs = Pairs()  # they are in the mask
        queries, keys, values = _without_unseen(seen, queries, keys, values)
        differs_by_head = mask is not None and shape_of(mask)[-3:-2] not in ((), (1,))
        with masked_is_harmless(self.attention, not (differs_by_head or keys.projected)):
            pooled = self.attention(
                split_heads(project(self.W_q, queries), self.num_heads),
                self._keys_for_all_heads(keys),
                self._for_all_heads(split_heads(project(self.W_v, values), self._kv_heads)),
                None if lengths is None else ops.repeat(ops.expand_dims(lengths, -1), self.num_heads, axis=-1),
                attention_mask=mask,
                use_causal_mask=pairs.causal,
                window=pairs.window,
                return_attention_scores=return_attention_scores,
                training=training,
            )
        pooled, weights = pooled if return_attention_scores else (pooled, None)
        if weights is not None:
            weights = ops.cast(weights, self.compute_dtype)  # the scoring layer may have another
        seeing = sees_some_key(None if seen is None else seen.queries, num_keys)
        return self._project_back(join_heads(pooled), seeing), weights

    def _lowered(
        self,
        queries: Tensor,
        keys: Keys,
        values: Tensor,
        masks: Masks,
        pairs: Pairs,
        returns_weights: bool,
        training: bool | None,
    ) -> tuple[Tensor, Tensor | None] | None:
        """What an exporter makes of a call over the heads of all projections, where there is one and it can."""
        evaluate = current_evaluator()
        if evaluate is None or keys.projected or not self.attention._can_be_lowered(training):
            return None
        if not self.attention._only_scores:
            return None
        if self.attention.compute_dtype != self.compute_dtype:
            return None
        rank, num_queries, num_keys = len(queries.shape), ops.shape(queries)[-2], ops.shape(keys.tensor)[-2]
        if evaluate.hides_unseen:
            lengths, others = split_lengths(masks, rank)
            mask = combine_masks(with_heads_axis(others, rank), pairs, num_queries, num_keys, rank + 1)
            queries, keys, values = _without_unseen(
                seen_in_some_head(lengths, mask, num_keys, rank), queries, keys, values
            )
        if masks.queries_mask is not None and not self.attention._scores_by_products:
            queries = hide(queries, masks.queries_mask)  # the form of other scores hangs on how large all queries are
        heads = Heads(self.num_heads, self._kv_heads)
        scoring = self.attention._scoring_of_heads(project(self.W_q, queries), project(self.W_k, keys.tensor), heads)
        if scoring is None:
            return None
        normalizer = self.attention.normalizer
        composite = composite_of(scoring, project(self.W_v, values), masks, pairs, self.attention, heads, normalizer)
        pooled, weights = evaluate(composite, returns_weights)
        if weights is not None and masks.queries_mask is not None:
            weights = hide(weights, ops.expand_dims(masks.queries_mask, -2))
        seeing = sees_some_key(queries_that_see(masks, pairs, num_queries, num_keys, rank), num_keys)
        return self._project_back(pooled, seeing), weights

    def _project_back(self, pooled: Tensor, seeing: Tensor | None) -> Tensor:
        output = project(self.W_o, pooled)
        return output if seeing is None else hide(output, seeing)  # others would get the bias

    def _keys_for_all_heads(self, keys: Keys) -> Any:
        if keys.projected:
            return {PROJECTED: self._for_all_heads(keys.tensor)}
        return self._for_all_heads(split_heads(project(self.W_k, keys.tensor), self._kv_heads))

    def _for_all_heads(self, heads: Tensor) -> Tensor:
        return repeat_heads(heads, self.num_heads // self._kv_heads)

    def _checked_shapes(self, queries_shape: Shape, keys: Keys, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        keys_shape = keys.tensor
        if not keys.projected:
            self.check_shapes(queries_shape, keys_shape, values_shape)
            return queries_shape, keys_shape, values_shape
        check_projected(keys_shape, self._kv_heads, axis=-3)
        keys_shape = (*keys_shape[:-3], keys_shape[-2], self._sizes[1])  # as if they were the keys
        self.check_shapes(queries_shape, keys_shape, values_shape)
        return queries_shape, keys_shape, values_shape

    def _output_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> tuple[Shape, Shape]:
        *batch, num_queries, num_keys = scores_shape_of(queries_shape, keys_shape, values_shape)
        size = self.output_dim or queries_shape[-1]
        return (*batch, num_queries, size), (*batch, self.num_heads, num_queries, num_keys)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        attention = keras.saving.serialize_keras_object(self.attention)
        attention.pop("build_config", None)  # this layer builds it
        return {
            **super().get_config(),
            "attention": attention,
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "num_kv_heads": self.num_kv_heads,
            "use_bias": self.use_bias,
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            **kernel_config(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MultiHeadAttention":
        """The layer with the arguments of `get_config`."""
        attention = keras.saving.deserialize_keras_object(config["attention"])
        return cls(**{**config, "attention": attention})


def _without_unseen(seen: Seen | None, queries: Tensor, keys: Keys, values: Tensor) -> tuple[Tensor, Keys, Tensor]:
    """Zeros for what no pair reads, before the products: zero times NaN is NaN."""
    if seen is None:
        return queries, keys, values
    same = keys.tensor is values
    queries, values = hide(queries, seen.queries), hide(values, seen.keys)
    if not keys.projected:
        keys = keys._replace(tensor=values if same else hide(keys.tensor, seen.keys))
    return queries, keys, values
