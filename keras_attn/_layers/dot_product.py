"""Scaled dot-product attention."""

from functools import partial
from typing import Any

import keras
from keras import ops

from .._checks.arguments import check_scale
from .._checks.tensors import check_same_size
from .._maths.scores import dot_product_scores
from .._pooling.composite import DOT_PRODUCT, Heads, Scoring
from .._pooling.pooling import AttentionPooling
from .._states.state import Keys
from .._tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class DotProductAttention(AttentionPooling):
    """Attention pooling with scaled dot products, for queries and keys of one size D. It has no weights.

    `score(q, k) = scale q.k`, with `scale = 1/sqrt(D)` unless given: for standard normal q and k the scores then have
    unit variance whatever D is.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        scale: Factor of the dot products; None for `1/sqrt(D)`.
        seed: Integer that fixes the draws of the dropout, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`, with Dq equal to Dk.

    Numerics:
        The queries are scaled before the product, which keeps float16 scores in range.

    Example:
        >>> layer = DotProductAttention(dropout=0.5)
        >>> output, weights = layer(queries, keys, values, use_causal_mask=True, return_attention_scores=True)

    Source: Vaswani et al. 2017, equation 1; there a single mask is added to the scores.
    """

    _scores_by_products = True

    def __init__(
        self, dropout: float = 0.0, *, scale: float | None = None, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(dropout, seed=seed, **kwargs)
        self.scale = check_scale(scale)

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree, Dq and Dk among them."""
        super().check_shapes(queries_shape, keys_shape, values_shape)
        check_same_size("the score is a dot product", queries_shape, keys_shape)

    def score_projected(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scaled dot products of queries `B + (Tq, D)` and keys `B + (Tk, D)`."""
        scale = self._scale(queries)
        if scale is None:
            scale = ops.rsqrt(ops.cast(ops.shape(queries)[-1], queries.dtype))
        return dot_product_scores(queries, keys, scale)

    def projected_size(self, queries_size: int | None) -> int | None:
        """D."""
        return queries_size

    def _scoring(self, queries: Tensor, keys: Keys) -> Scoring | None:
        """Scaled dot products, unless D is unknown."""
        scale = self._scale(queries)
        return None if scale is None else scoring_by_dot_products(queries, keys.tensor, scale)

    def _scoring_of_heads(self, queries: Tensor, keys: Tensor, heads: Heads) -> Scoring | None:
        """Scaled dot products: the sizes of the heads are those of kernels."""
        scale = (queries.shape[-1] // heads.of_queries) ** -0.5 if self.scale is None else self.scale
        return scoring_by_dot_products(queries, keys, scale)

    def _scale(self, queries: Tensor) -> float | None:
        size = queries.shape[-1]
        return self.scale if self.scale is not None or size is None else size**-0.5

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        return {**super().get_config(), "scale": self.scale}


def scoring_by_dot_products(queries: Tensor, keys: Tensor, scale: float) -> Scoring:
    """Scores `scale q.k` of queries `B + (Tq, D)` and keys `B + (Tk, D)`, as an exporter gets them."""
    score = partial(dot_product_scores, scale=scale)
    return Scoring(DOT_PRODUCT, score, {"queries": queries, "keys": keys}, {"scale": scale})
