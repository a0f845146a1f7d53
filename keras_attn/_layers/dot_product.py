"""Scaled dot-product attention."""

from functools import partial
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_scale
from .._maths.scores import dot_product_scores
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.scoring import DOT_PRODUCT, Scoring
from .._types import Heads, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class DotProductAttention(AttentionPooling):
    """Attention pooling with scaled dot products, for queries and keys of one size D. It has no weights.

    `score(q, k) = scale q.k`. The default `scale = 1/sqrt(D)` gives the scores of standard normal queries and keys
    unit variance for every D.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        scale: Factor of the dot products; None for `1/sqrt(D)`.
        seed: Integer that fixes the random draws of the dropout, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`, with Dq equal to Dk.

    Example:
        >>> layer = DotProductAttention(dropout=0.5)
        >>> output, weights = layer(queries, keys, values, use_causal_mask=True, return_attention_scores=True)

    Source: Vaswani et al. 2017, equation 1.
    """

    _equal_sizes_reason = "the score is a dot product"

    def __init__(
        self, dropout: float = 0.0, *, scale: float | None = None, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(dropout, seed=seed, **kwargs)
        self.scale = check_scale(scale)

    def _scoring(self, call: AttentionCall) -> Scoring:
        queries, keys = self._project_inputs(call)
        scale, size, heads = self.scale, queries.shape[-1], call.heads or Heads()
        if scale is None and size is not None:
            scale = (size // heads.num_query_heads) ** -0.5
        return make_dot_product_scoring(queries, keys, scale)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale}


def make_dot_product_scoring(queries: Tensor, keys: Tensor, scale: float | None = 1.0) -> Scoring:
    """Return scoring `scale q.k` of queries `B + (Tq, D)` and keys `B + (Tk, D)`. `scale=None` means `1/sqrt(D)`."""
    tensors = {"queries": queries, "keys": keys}
    if scale is None:  # D is unknown until the layer runs
        default_scale = ops.rsqrt(ops.cast(ops.shape(queries)[-1], queries.dtype))
        return Scoring(None, partial(dot_product_scores, scale=default_scale), tensors)
    return Scoring(DOT_PRODUCT, partial(dot_product_scores, scale=scale), tensors, {"scale": scale})
