"""Location-sensitive attention."""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import keras
from keras import ops

from .._checks.arguments import check_flag, check_positive_integer
from .._checks.tensors import check_last_axis
from .._keras.projections import kernel_config, projection, set_kernel_options
from .._maths.heads import project
from .._maths.masks import combine_masks
from .._maths.scores import additive_scores, weighed
from .._pooling.composite import ADDITIVE, Scoring, pool
from .._pooling.pooling import AttentionPooling
from .._states.state import Keys, unpacked
from .._tensors import Masks, Pairs, Shape, Tensor, as_tensor, dtype_of, merge_shapes, shape_of, shapes_agree

_PREVIOUS: ContextVar[Any] = ContextVar("keras_attn_previous_weights", default=None)


@keras.saving.register_keras_serializable(package="keras_attn")
class LocationSensitiveAttention(AttentionPooling):
    """Attention pooling with additive scores that also read where the weights lay before.

    `score(q, k_j) = w_v^T tanh(W_q q + W_k k_j + W_f f_j + b)`, `f_j = sum_r F_r a_(j + r - left)`

    `a` are the weights of the step before, or the sum of those of all steps so far, zero beyond the keys and where they
    are masked; `r` runs from 0 to the size, and `left = (size - 1) // 2`. `F` (size, filters), applied to windows,
    `W_q`, `W_k`, `W_f` (filters, U) and `w_v` are `keras.layers.Dense` layers; only `W_q` has a bias, `b` (U,).

    Args:
        num_hiddens: U, the number of hidden units.
        filters: The number of features of a place; 32 in Tacotron 2.
        kernel_size: How many places a feature reads; 31 in Tacotron 2.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the draws of the dropout, or None.
        cumulative: Whether `next_weights` sums the weights of all steps, as Tacotron 2 does.
        kernel_initializer: Initializer of each of the five kernels.
        kernel_regularizer: Regularizer of each of them, or None.
        kernel_constraint: Constraint on each of them, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        previous_weights: Floats, `B + (Tk,)` for all queries, or `B + (1, Tk)` or `B + (Tq, Tk)`. None for zeros, as
            before the first step.
        Others, Returns, Masking, Raises: those of `AttentionPooling`.

    Numerics:
        One query, or weights before that are the same for all, costs what additive attention does. With others the
        features of places take `B Tq Tk U` numbers more.

    Example:
        >>> layer = LocationSensitiveAttention(128, filters=32, kernel_size=31)
        >>> context, weights = layer(query, keys, keys, return_attention_scores=True)
        >>> context = layer(query, keys, keys, previous_weights=weights)

    Source: Chorowski et al. 2015, equations 8 and 9; sums: Shen et al. 2018 (Tacotron 2), section 2.2.
    """

    def __init__(
        self,
        num_hiddens: int,
        filters: int = 32,
        kernel_size: int = 31,
        dropout: float = 0.0,
        *,
        seed: int | None = None,
        cumulative: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed=seed, **kwargs)
        self.num_hiddens = check_positive_integer("num_hiddens", num_hiddens)
        self.filters = check_positive_integer("filters", filters)
        self.kernel_size = check_positive_integer("kernel_size", kernel_size)
        self.cumulative = check_flag("cumulative", cumulative)
        set_kernel_options(
            self,
            kernel_initializer=kernel_initializer,
            kernel_regularizer=kernel_regularizer,
            kernel_constraint=kernel_constraint,
        )
        self._sizes: tuple[int | None, int | None] = (None, None)
        self.W_q = projection(self, "W_q", self.num_hiddens, use_bias=True)
        self.W_k = projection(self, "W_k", self.num_hiddens)
        self.W_f = projection(self, "W_f", self.num_hiddens)
        self.w_v = projection(self, "w_v", 1)
        self.F = projection(self, "F", self.filters)

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree with each other or with the kernels."""
        super().check_shapes(queries_shape, keys_shape, values_shape)
        check_last_axis("queries", queries_shape, "W_q", self._sizes[0])
        check_last_axis("keys", keys_shape, "W_k", self._sizes[1])

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Makes the five kernels, and the bias of the queries."""
        super().build(queries_shape, keys_shape, values_shape)
        self._sizes = (queries_shape[-1], keys_shape[-1])
        self.W_q.build(queries_shape)
        self.W_k.build(keys_shape)
        self.F.build((None, self.kernel_size))
        self.W_f.build((None, None, self.filters))
        self.w_v.build((None, self.num_hiddens))

    def call(
        self,
        queries: Tensor,
        keys: Any,
        values: Tensor | None = None,
        valid_lens: Any = None,
        *,
        previous_weights: Any = None,
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
        """Pools the values; or gives a state of keys and values alone."""
        with weights_before(None if previous_weights is None else _checked_previous(previous_weights, queries, keys)):
            return super().call(
                queries,
                keys,
                values,
                valid_lens,
                score_bias=score_bias,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                window=window,
                offset=offset,
                return_attention_scores=return_attention_scores,
                training=training,
                queries_mask=queries_mask,
                keys_mask=keys_mask,
                values_mask=values_mask,
                _only_state=_only_state,
            )

    def compute_output_spec(
        self, queries: Tensor, keys: Any, *others: Any, previous_weights: Any = None, **options: Any
    ) -> Any:
        """The shape and dtype of what `call` returns."""
        if previous_weights is not None:
            _checked_previous(previous_weights, queries, keys)
        return super().compute_output_spec(queries, keys, *others, **options)

    def next_weights(self, previous_weights: Tensor, weights: Tensor) -> Tensor:
        """What the next step gets as `previous_weights`, of what this one got and gave, in the dtype of the former."""
        weights = ops.cast(weights, dtype_of(previous_weights))
        return previous_weights + weights if self.cumulative else weights

    def project_keys(self, keys: Tensor) -> Tensor:
        """Projected keys `W_k k`, `B + (Tk, U)`."""
        return self.W_k(keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """U."""
        return self.num_hiddens

    def score_projected(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores of queries `B + (Tq, Dq)` and projected keys `B + (Tk, U)`, with what is added to them."""
        return additive_scores(project(self.W_q, queries), keys, self.w_v)

    def _attend(
        self, queries: Tensor, keys: Keys, values: Tensor, masks: Masks, pairs: Pairs, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        mask = combine_masks(masks, pairs, ops.shape(queries)[-2], ops.shape(keys.tensor)[-2], len(queries.shape))
        seen_queries, keys = self._without_unseen(mask, queries, keys)
        projected = keys.tensor if keys.projected else self.project_keys(keys.tensor)
        previous = _PREVIOUS.get()
        if previous is None:
            previous = ops.zeros_like(ops.expand_dims(projected[..., 0], -2))
        else:
            previous = _where_seen(previous, masks._replace(queries_mask=None), pairs, queries, keys.tensor)
        features = self._features(ops.cast(previous, projected.dtype))
        if shape_of(previous)[-2] == 1:  # the same for all queries: then they are a part of the keys
            keys = keys._replace(tensor=projected + ops.squeeze(features, -3), projected=True)
            return super()._attend(queries, keys, values, masks, pairs, **options)
        hidden = ops.expand_dims(project(self.W_q, seen_queries), -2) + ops.expand_dims(projected, -3) + features
        scores = weighed(ops.tanh(hidden), self.w_v)
        drop = partial(self._drop, training=options["training"])
        return pool(scores, values, mask, drop, self.normalizer, options["bias"])

    def _features(self, previous: Tensor) -> Tensor:
        """`W_f f` of weights `B + (n, Tk)`: `B + (n, Tk, U)`."""
        *axes, size = ops.shape(windows := _windows(previous, self.kernel_size))
        found = self.W_f(self.F(ops.reshape(windows, (math.prod(axes), size))))  # two axes: see `weighed`
        return ops.reshape(found, (*axes, self.num_hiddens))

    def _scoring(self, queries: Tensor, keys: Keys) -> Scoring | None:
        """Additive scores, once the features are in the keys; with a quantized `w_v` they are no plain product."""
        if not keys.projected or self.w_v.quantization_mode is not None:
            return None
        kernel = ops.cast(self.w_v.kernel, self.w_v.compute_dtype)
        tensors = {"queries": project(self.W_q, queries), "keys": keys.tensor, "w_v": kernel}
        return Scoring(ADDITIVE, _scores_of, tensors, {})

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        return {
            **super().get_config(),
            "num_hiddens": self.num_hiddens,
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "cumulative": self.cumulative,
            **kernel_config(self),
        }


def _windows(places: Tensor, size: int) -> Tensor:
    """Each of the numbers `B + (T,)` with those around it, zeros beyond the ends: `B + (T, size)`.

    By a selection, and so in every dtype and for any T: convolutions of Keras differ there between backends.
    """
    left, count = (size - 1) // 2, ops.shape(places)[-1]
    padding = [*((0, 0) for _ in places.shape[:-1]), (left, size - left)]  # one more: JAX takes nothing of nothing
    first = ops.expand_dims(ops.arange(count, dtype="int32"), -1)
    return ops.take(ops.pad(places, padding), first + ops.arange(size, dtype="int32"), axis=-1)


@contextlib.contextmanager
def weights_before(previous: Tensor | None) -> Iterator[None]:
    """Tells the layer that is called of the weights before, which are no argument of what its base does."""
    token = _PREVIOUS.set(previous)
    try:
        yield
    finally:
        _PREVIOUS.reset(token)


def _where_seen(previous: Tensor, masks: Masks, pairs: Pairs, queries: Tensor, keys: Tensor) -> Tensor:
    """Weights so far `B + (n, Tk)`, zero where a key is masked: for each query where masks tell queries apart."""
    seen = combine_masks(masks, pairs, ops.shape(queries)[-2], ops.shape(keys)[-2], len(queries.shape))
    return previous if seen is None else ops.where(seen, previous, 0.0)


def _checked_previous(previous: Any, queries: Tensor, keys: Any) -> Tensor:
    """The weights before as `B + (1, Tk)` or `B + (Tq, Tk)`."""
    previous = as_tensor(previous)
    of_queries, of_keys = shape_of(queries), shape_of(unpacked(keys, None).tensor)
    *batch, places = merge_shapes((*of_queries[:-2], None), of_keys[:-1])
    shape, wanted = shape_of(previous), ((*batch, places), (*batch, 1, places), (*batch, of_queries[-2], places))
    if not keras.backend.is_float_dtype(dtype_of(previous)) or not any(shapes_agree(shape, each) for each in wanted):
        raise ValueError(
            "`previous_weights` must be floats of shape B + (Tk,), or B + (Tq, Tk). "
            f"Received: previous_weights shape {shape}, dtype {dtype_of(previous)}, queries shape {of_queries}, keys "
            f"shape {of_keys}. Pass what a call returned with `return_attention_scores=True`."
        )
    return ops.expand_dims(previous, -2) if len(shape) == len(batch) + 1 else previous


def _scores_of(queries: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    return additive_scores(queries, keys, lambda features: ops.matmul(features, w_v))
