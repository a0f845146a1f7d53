"""Additive attention."""

from typing import Any

import keras
from keras import ops

from ._arguments import check_block_size, check_positive_integer
from ._blocks import BlockSize, blocked_additive_scores
from ._checks import check_last_axis
from ._composite import Scoring
from ._masking import hide_unseen
from ._policies import policy_of_sublayer
from ._pooling import AttentionPooling
from ._scores import additive_scores
from ._types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class AdditiveAttention(AttentionPooling):
    """Attention pooling with additive scores, for queries and keys of any sizes.

    `score(q, k) = w_v^T tanh(W_q q + W_k k)`

    The three products are bias-free `keras.layers.Dense` layers: `W_q` (Dq, U), `W_k` (Dk, U) and `w_v` (U, 1).

    Args:
        num_hiddens: U, the number of hidden units.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the draws of the dropout, or None.
        query_block_size: The largest number of queries whose features exist at a time, or `"auto"` for a number that
            keeps them in cache; None for all queries. It changes memory and time, not the result.
        kernel_initializer: Initializer of each of the three kernels.
        kernel_regularizer: Regularizer of each of the three kernels, or None.
        kernel_constraint: Constraint on each of the three kernels, or None.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`.

    Numerics:
        The features `tanh(W_q q + W_k k)` take `B Tq Tk U` numbers, in training until the gradient is computed. With
        blocks of `n` queries they take `B n Tk U`, and are computed again for the gradient, which sums in float32 at
        least. If `w_v` is quantized, there are no blocks.

    Example:
        >>> layer = AdditiveAttention(num_hiddens=8, dropout=0.1)
        >>> output = layer(queries, keys, values, keras.ops.array([2, 6]))

    Source: Bahdanau, Cho and Bengio 2014, appendix A.1.2; there the query is a decoder state and no key is masked.
    """

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        seed: int | None = None,
        query_block_size: BlockSize = None,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed=seed, **kwargs)
        self.num_hiddens = check_positive_integer("num_hiddens", num_hiddens)
        self.query_block_size = check_block_size("query_block_size", query_block_size)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self._sizes: tuple[int | None, int | None] = (None, None)
        self.W_q = self._projection("W_q", self.num_hiddens)
        self.W_k = self._projection("W_k", self.num_hiddens)
        self.w_v = self._projection("w_v", 1)

    def _projection(self, name: str, units: int) -> Any:
        initializer = self.kernel_initializer
        if isinstance(initializer, keras.initializers.Initializer):
            # One initializer draws the same numbers each time, and W_q must not start as a copy of W_k.
            initializer = initializer.clone()
        return keras.layers.Dense(
            units,
            use_bias=False,
            kernel_initializer=initializer,
            kernel_regularizer=self.kernel_regularizer,
            kernel_constraint=self.kernel_constraint,
            dtype=policy_of_sublayer(self, name),
            name=name,
        )

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree with each other or with the kernels."""
        super().check_shapes(queries_shape, keys_shape, values_shape)
        check_last_axis("queries", queries_shape, "W_q", self._sizes[0])
        check_last_axis("keys", keys_shape, "W_k", self._sizes[1])

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Makes the three kernels."""
        super().build(queries_shape, keys_shape, values_shape)
        self._sizes = (queries_shape[-1], keys_shape[-1])
        self.W_q.build(queries_shape)
        self.W_k.build(keys_shape)
        self.w_v.build((*queries_shape[:-1], keys_shape[-2], self.num_hiddens))

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Additive scores of queries `B + (Tq, Dq)` and keys `B + (Tk, Dk)`."""
        queries, keys = self.W_q(queries), self.W_k(keys)
        if self.query_block_size is None or not self._weighs_by_kernel():
            return additive_scores(queries, keys, self.w_v)
        w_v = ops.cast(self.w_v.kernel, self.w_v.compute_dtype)
        return blocked_additive_scores(queries, keys, w_v, self.query_block_size)

    def _scoring(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Scoring | None:
        """Additive scores of projected queries and keys, unless `w_v` is more than a product with its kernel."""
        if not self._weighs_by_kernel():
            return None
        queries, keys = hide_unseen(mask, queries, keys)  # before the product: zero times NaN is NaN
        tensors = {
            "queries": self.W_q(queries),
            "keys": self.W_k(keys),
            "w_v": ops.cast(self.w_v.kernel, self.compute_dtype),
        }
        return Scoring("additive", _scores_of, tensors, {})

    def _weighs_by_kernel(self) -> bool:
        """Whether `w_v` is a product with its kernel: int8 has one of its own, and a subclass may have replaced it."""
        plain = isinstance(self.w_v, keras.layers.Dense) and self.w_v.activation is keras.activations.linear
        return plain and not self.w_v.use_bias and self.w_v.quantization_mode is None

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        return {
            **super().get_config(),
            "num_hiddens": self.num_hiddens,
            "query_block_size": self.query_block_size,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
        }


def _scores_of(queries: Tensor, keys: Tensor, w_v: Tensor, mask: Tensor | None) -> Tensor:
    return additive_scores(queries, keys, lambda features: ops.matmul(features, w_v))
