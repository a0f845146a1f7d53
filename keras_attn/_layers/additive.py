"""Additive attention (Bahdanau), optionally with normalized weights."""

from functools import partial
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_block_size, check_flag, check_positive_integer
from .._keras.projections import is_plain_matmul, kernel_config, make_projection, set_kernel_options
from .._maths.additive_query_blocks import UNBOUNDED, BlockSize, blocked_additive_scores
from .._maths.heads import apply_dense
from .._maths.scores import additive_scores, vector_norms
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.composite import current_evaluator
from .._pooling.scoring import ADDITIVE, Scoring
from .._shapes import at_least_float32
from .._types import BandMask, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class AdditiveAttention(AttentionPooling):
    """Attention pooling with additive scores, for queries and keys of any sizes.

    `score(q, k) = w_v^T tanh(W_q q + W_k k)`, or normalized `g w_v^T/||w_v|| tanh(W_q q + W_k k + b)`

    `W_q` (Dq, U), `W_k` (Dk, U) and `w_v` (U, 1) are kernels of `keras.layers.Dense` layers without bias. Normalized
    scores have two more weights: the scalar `g`, and `b` (U,).

    Args:
        num_hiddens: U, the number of hidden units.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        normalize: True to divide `w_v` by its norm, so that the learned `g` sets the magnitude of the scores.
        query_block_size: Maximum number of queries whose features are computed at a time; None for all queries.
            `"auto"` chooses by the number of features, and computes all queries at once if there are few features. It
            changes memory and time, not the result. See `docs/scores.md`.
        kernel_initializer: Initializer of each of the three kernels.
        kernel_regularizer: Regularizer of each of the three kernels, or None.
        kernel_constraint: Constraint on each of the three kernels, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`.

    Numerics:
        The features `tanh(W_q q + W_k k)` are `B Tq Tk U` numbers, which training stores until the gradient is
        computed. Blocks of `n` queries store `B n Tk U` numbers and recompute the features for the gradient, which is
        summed in float32 at least. With blocks, most features that a causal mask or a window masks are not computed.
        If `w_v` is quantized, there are no blocks.

    Example:
        >>> layer = AdditiveAttention(num_hiddens=8, dropout=0.1)
        >>> output = layer(queries, keys, values, keras.ops.array([2, 6]))

    Source: Bahdanau, Cho and Bengio 2014, appendix A.1.2, with a decoder state as query and without masks.
        Normalized: Salimans and Kingma 2016, equation 2, with the initial values `g = sqrt(1/U)`, `b = 0` of TensorFlow
        Addons.
    """

    _kernel_names = ("W_q", "W_k")

    def __init__(
        self,
        num_hiddens: int,
        dropout: float = 0.0,
        *,
        seed: int | None = None,
        normalize: bool = False,
        query_block_size: BlockSize = "auto",
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed=seed, **kwargs)
        self.num_hiddens = check_positive_integer("num_hiddens", num_hiddens)
        self.normalize = check_flag("normalize", normalize)
        self.query_block_size = check_block_size("query_block_size", query_block_size)
        set_kernel_options(self, kernel_initializer, kernel_regularizer, kernel_constraint)
        self.g: Any = None
        self.b: Any = None
        self.W_q = make_projection(self, "W_q", self.num_hiddens)
        self.W_k = make_projection(self, "W_k", self.num_hiddens)
        self.w_v = make_projection(self, "w_v", 1)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        super().build(queries_shape, keys_shape, values_shape)
        self.W_q.build(queries_shape)
        self.W_k.build(keys_shape)
        self.w_v.build((*queries_shape[:-1], keys_shape[-2], self.num_hiddens))
        if self.normalize:
            constant = keras.initializers.Constant(self.num_hiddens**-0.5)
            self.g = self.add_weight(shape=(), initializer=constant, autocast=False, name="g")
            self.b = self.add_weight(shape=(self.num_hiddens,), initializer="zeros", name="b")

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return projected keys `W_k k`, `B + (Tk, U)`, of keys `B + (Tk, Dk)`."""
        return self.W_k(keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """Return U."""
        return self.num_hiddens

    def _scoring(self, call: AttentionCall) -> Scoring:
        """Return additive scores by the kernel of `w_v`, or by the layer `w_v` if it is no plain matrix product."""
        queries, keys = self._project_inputs(call)
        if not is_plain_matmul(self.w_v):
            return Scoring(None, self._score_with_layer, {"queries": queries, "keys": keys})
        # An exporter's lowering divides into blocks itself; a loop of this layer inside of it would be slower.
        block_size = self.query_block_size if current_evaluator() is None else None
        return make_additive_scoring(queries, keys, self._w_v_kernel(), block_size, call.band)

    def _project_queries(self, queries: Tensor) -> Tensor:
        projected = apply_dense(self.W_q, queries)
        return projected if self.b is None else projected + ops.cast(self.b, projected.dtype)

    def _score_with_layer(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return scores `B + (Tq, Tk)` of projected queries and keys, from calls of the layer `w_v`."""
        scores = additive_scores(queries, keys, self.w_v)
        if self.g is None:
            return scores
        # The products with unit vectors are the kernel, also of a quantized or replaced layer.
        kernel = self.w_v(ops.eye(self.num_hiddens, dtype=self.compute_dtype))
        return scores * ops.cast(self.g / ops.reshape(vector_norms(ops.transpose(kernel)), ()), scores.dtype)

    def _w_v_kernel(self) -> Tensor:
        kernel = ops.cast(self.w_v.kernel, self.w_v.compute_dtype)
        if self.g is None:
            return kernel
        return ops.cast(self.g * at_least_float32(kernel) / vector_norms(ops.transpose(kernel)), kernel.dtype)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "AdditiveAttention":
        """Return a layer with the arguments of `get_config`."""
        # Files from before `query_block_size` load without blocks. A subclass may not accept the argument.
        if cls.__init__ is AdditiveAttention.__init__:
            config = {"query_block_size": None, **config}
        layer: AdditiveAttention = super().from_config(config)
        return layer

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_hiddens": self.num_hiddens,
            "normalize": self.normalize,
            "query_block_size": self.query_block_size,
            **kernel_config(self),
        }


def make_additive_scoring(
    queries: Tensor, keys: Tensor, w_v: Tensor, block_size: BlockSize = None, band: BandMask = UNBOUNDED
) -> Scoring:
    """Return the scoring `w_v^T tanh(q + k)` of projected queries `B + (Tq, U)`, keys `B + (Tk, U)`, `w_v` (U, 1)."""
    score = partial(blocked_additive_scores, block_size=block_size, band=band)
    return Scoring(ADDITIVE, score, {"queries": queries, "keys": keys, "w_v": w_v})
