"""Bilinear attention (Luong)."""

from typing import Any

import keras

from .._keras.projections import kernel_config, make_projection, set_kernel_options
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.scoring import Scoring
from .._types import Tensor
from .dot_product import make_dot_product_scoring


@keras.saving.register_keras_serializable(package="keras_attn")
class BilinearAttention(AttentionPooling):
    """Attention pooling with bilinear scores, for queries and keys of any sizes; only matrix products.

    `score(q, k) = q^T W k`

    `W` is a `keras.layers.Dense` layer without bias that is applied to the keys. Its kernel (Dk, Dq) is the transpose
    of the matrix in the formula.

    Args:
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        kernel_initializer: Initializer of the kernel.
        kernel_regularizer: Regularizer of the kernel, or None.
        kernel_constraint: Constraint on the kernel, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`.

    Numerics:
        Scores are not scaled. With standard normal queries and keys and the default initializer, their variance is
        `2 Dq Dk / (Dq + Dk)`.

    Example:
        >>> layer = BilinearAttention()
        >>> output = layer(queries, keys, values, keras.ops.array([2, 6]))

    Source: Luong, Pham and Manning 2015, equation 8, "general".
    """

    _kernel_names = ("W", "W")

    def __init__(
        self,
        dropout: float = 0.0,
        *,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed=seed, **kwargs)
        set_kernel_options(self, kernel_initializer, kernel_regularizer, kernel_constraint)
        self.W: Any = None

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        super().build(queries_shape, keys_shape, values_shape)
        self.W = make_projection(self, "W", queries_shape[-1])
        self.W.build(keys_shape)

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return projected keys `W k`, `B + (Tk, Dq)`, of keys `B + (Tk, Dk)`."""
        return self.W(keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """Return Dq."""
        return self._sizes[0]

    def _scoring(self, call: AttentionCall) -> Scoring:
        return make_dot_product_scoring(*self._project_inputs(call))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **kernel_config(self)}
