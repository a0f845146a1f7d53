"""Location-sensitive attention: additive scores with features of the previous weights."""

import math
from functools import partial
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_flag, check_positive_integer
from .._keras.projections import is_plain_matmul, kernel_config, make_projection, set_kernel_options
from .._maths.heads import apply_dense
from .._maths.scores import additive_scores, project_features
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_layer import add_keyword
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.scoring import Scoring
from .._shapes import as_tensor, dtype_of, merge_shapes, shape_of, shapes_agree
from .._types import Shape, Tensor
from .additive import make_additive_scoring


@keras.saving.register_keras_serializable(package="keras_attn")
class LocationSensitiveAttention(AttentionPooling):
    """Attention pooling with additive scores that also depend on the weights of the previous step.

    `score(q, k_j) = w_v^T tanh(W_q q + W_k k_j + W_f f_j + b)`, `f_j = sum_r F_r a_(j + r - left)`

    `a` are the weights of the previous step, or the sum of the weights of all previous steps, zero-padded, and zero for
    masked keys. `r` runs from 0 to `kernel_size - 1`, and `left = (kernel_size - 1) // 2`. `F` (kernel_size, filters),
    `W_q` (Dq, U), `W_k` (Dk, U), `W_f` (filters, U) and `w_v` (U, 1) are `keras.layers.Dense` layers. Only `W_q` has a
    bias, `b` (U,).

    Args:
        num_hiddens: U, the number of hidden units.
        filters: The number of features for each key; 32 in Tacotron 2.
        kernel_size: The number of previous weights that a feature reads; 31 in Tacotron 2.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        cumulative: True if `next_weights` sums the weights of all steps, as in Tacotron 2.
        kernel_initializer: Initializer of the five kernels.
        kernel_regularizer: Regularizer of the five kernels, or None.
        kernel_constraint: Constraint on the five kernels, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        previous_weights: Floats, `B + (Tk,)` for all queries, or `B + (1, Tk)` or `B + (Tq, Tk)`. None for zeros, as
            before the first step.
        Others, Returns, Masking, Raises: those of `AttentionPooling`.

    Numerics:
        With one query, or if the previous weights are the same for all queries, a call costs as much as additive
        attention. If they differ between queries, the features are another `B Tq Tk U` numbers.

    Example:
        >>> layer = LocationSensitiveAttention(128, filters=32, kernel_size=31)
        >>> context, weights = layer(query, keys, keys, return_attention_scores=True)
        >>> context = layer(query, keys, keys, previous_weights=weights)

    Source: Chorowski et al. 2015, equations 8 and 9; sums: Shen et al. 2018 (Tacotron 2), section 2.2.
    """

    _kernel_names = ("W_q", "W_k")

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
        set_kernel_options(self, kernel_initializer, kernel_regularizer, kernel_constraint)
        self.W_q = make_projection(self, "W_q", self.num_hiddens, use_bias=True)
        self.W_k = make_projection(self, "W_k", self.num_hiddens)
        self.W_f = make_projection(self, "W_f", self.num_hiddens)
        self.w_v = make_projection(self, "w_v", 1)
        self.F = make_projection(self, "F", self.filters)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Create the five kernels and the bias of the queries."""
        super().build(queries_shape, keys_shape, values_shape)
        self.W_q.build(queries_shape)
        self.W_k.build(keys_shape)
        self.F.build((None, self.kernel_size))
        self.W_f.build((None, None, self.filters))
        self.w_v.build((None, self.num_hiddens))

    @partial(add_keyword, "previous_weights")
    def call(self, *args: Any, previous_weights: Any = None, **options: Any) -> Any:
        """Pool the values, or return a key/value cache for `precompute` and `append`."""
        return super().call(*args, **options, _previous_weights=previous_weights)

    def compute_output_spec(self, *args: Any, **options: Any) -> Any:
        return LocationSensitiveAttention.call(self, *args, **options, _only_spec=True)

    def _validate_call(self, raw_call: AttentionCall) -> tuple[AttentionCall, tuple[Shape, Shape]]:
        call, shapes = super()._validate_call(raw_call)
        if raw_call.previous_weights is not None:
            call = call._replace(previous_weights=_validate_previous_weights(raw_call.previous_weights, call))
        return call, shapes

    def next_weights(self, previous_weights: Tensor, weights: Tensor) -> Tensor:
        """Return the `previous_weights` of the next step, in their shape and dtype, from the weights of this step."""
        weights = ops.cast(weights, dtype_of(previous_weights))
        return previous_weights + weights if self.cumulative else weights

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return projected keys `W_k k`, `B + (Tk, U)`, of keys `B + (Tk, Dk)`."""
        return self.W_k(keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """Return U."""
        return self.num_hiddens

    def _zero_masked_inputs(self, call: AttentionCall, mask: Tensor | None) -> AttentionCall:
        """Zero fully masked queries and keys, and the previous weights of masked keys, separately for every query."""
        key_mask = call._replace(masks=call.masks._replace(queries_mask=None)).mask()
        call = super()._zero_masked_inputs(call, mask)
        if key_mask is None or call.previous_weights is None:
            return call
        return call._replace(previous_weights=ops.where(key_mask, call.previous_weights, 0.0))

    def _mask_changes_scoring(self, call: AttentionCall) -> bool:
        """Return True: the feature of a key depends on the previous weights of adjacent keys, which may be masked."""
        return True

    def _project_queries(self, queries: Tensor) -> Tensor:
        return apply_dense(self.W_q, queries)

    def _scoring(self, call: AttentionCall) -> Scoring:
        """Return additive scores; features that are the same for all queries are added to the keys."""
        queries, keys = self._project_inputs(call)
        previous = call.previous_weights
        if previous is None:
            previous = ops.zeros_like(ops.expand_dims(keys[..., 0], -2))
        features = self._location_features(ops.cast(previous, keys.dtype))
        if shape_of(previous)[-2] != 1:
            preactivations = ops.expand_dims(queries, -2) + ops.expand_dims(keys, -3) + features
            return Scoring(None, partial(project_features, apply_w_v=self.w_v), {"features": ops.tanh(preactivations)})
        keys = keys + ops.squeeze(features, -3)
        if not is_plain_matmul(self.w_v):
            return Scoring(None, partial(additive_scores, apply_w_v=self.w_v), {"queries": queries, "keys": keys})
        return make_additive_scoring(queries, keys, ops.cast(self.w_v.kernel, self.w_v.compute_dtype))

    def _scoring_by_methods(self, call: AttentionCall) -> Scoring:
        """Add the features to the projected keys of a subclass; a subclass that overrides `score` gets no features."""
        previous = call.previous_weights
        if previous is None or not self._has_split_score:
            return super()._scoring_by_methods(call)
        if shape_of(previous)[-2] != 1:
            return LocationSensitiveAttention._scoring(self, call)
        keys = call.keys.tensor if call.keys.projected else self.project_keys(call.keys.tensor)
        keys = keys + ops.squeeze(self._location_features(ops.cast(previous, keys.dtype)), -3)
        return super()._scoring_by_methods(call._replace(keys=call.keys._replace(tensor=keys, projected=True)))

    def _location_features(self, previous: Tensor) -> Tensor:
        """Return features `W_f f`, `B + (n, Tk, U)`, of previous weights `B + (n, Tk)`; n is 1 or Tq."""
        *axes, size = ops.shape(windows := _sliding_windows(previous, self.kernel_size))
        # Two axes, for the reason in `project_features`.
        features = self.W_f(self.F(ops.reshape(windows, (math.prod(axes), size))))
        return ops.reshape(features, (*axes, self.num_hiddens))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_hiddens": self.num_hiddens,
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "cumulative": self.cumulative,
            **kernel_config(self),
        }


def _sliding_windows(weights: Tensor, size: int) -> Tensor:
    """Return zero-padded sliding windows `B + (T, size)` of weights `B + (T,)`, centered at `(size - 1) // 2`."""
    # A gather supports every dtype and T = 0; convolutions of Keras differ between backends there. One zero more than
    # necessary, since JAX cannot gather from an empty axis.
    left, count = (size - 1) // 2, ops.shape(weights)[-1]
    padding = [*((0, 0) for _ in weights.shape[:-1]), (left, size - left)]
    window_starts = ops.expand_dims(ops.arange(count, dtype="int32"), -1)
    return ops.take(ops.pad(weights, padding), window_starts + ops.arange(size, dtype="int32"), axis=-1)


def _validate_previous_weights(previous: Any, call: AttentionCall) -> Tensor:
    """Return previous weights as `B + (1, Tk)` or `B + (Tq, Tk)`; raise ValueError for other shapes or dtypes."""
    previous = as_tensor(previous)
    queries_shape, keys_shape = shape_of(call.queries), shape_of(call.keys.tensor)
    *batch, num_keys = merge_shapes((*queries_shape[:-2], None), keys_shape[:-1])
    shape = shape_of(previous)
    allowed_shapes = (*batch, num_keys), (*batch, 1, num_keys), (*batch, queries_shape[-2], num_keys)
    has_allowed_shape = any(shapes_agree(shape, allowed_shape) for allowed_shape in allowed_shapes)
    if not keras.backend.is_float_dtype(dtype_of(previous)) or not has_allowed_shape:
        raise ValueError(
            "`previous_weights` must be floats of shape B + (Tk,), or B + (Tq, Tk). "
            f"Received: previous_weights shape {shape}, dtype {dtype_of(previous)}, queries shape {queries_shape}, "
            f"keys shape {keys_shape}. Pass what a call returned with `return_attention_scores=True`."
        )
    return ops.expand_dims(previous, -2) if len(shape) == len(batch) + 1 else previous
