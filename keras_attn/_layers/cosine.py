"""Cosine attention with a learned temperature."""

import math
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_positive
from .._maths.scores import normalize_vectors
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.scoring import Scoring
from .._shapes import dtype_of
from .._types import Tensor
from .dot_product import make_dot_product_scoring


@keras.saving.register_keras_serializable(package="keras_attn")
class CosineAttention(AttentionPooling):
    """Attention pooling by the cosine of the angle between queries and keys of one size D.

    `score(q, k) = q.k / (||q|| ||k|| T)`, with the temperature `T = exp(log_temperature)`.

    Args:
        temperature: Initial value of T, above 0. Scores lie between `-1/T` and `1/T`, so with the default two weights
            differ by a factor of at most `exp(2)`.
        trainable: True to train the temperature.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`, with Dq equal to Dk.

    Numerics:
        Norms are computed in float32 at least. A zero vector has the score 0 with every other vector.

    Example:
        >>> layer = CosineAttention(temperature=0.1)
        >>> output = layer(queries, keys, values)

    Source: Graves, Wayne and Danihelka 2014, equations 5 and 6, with `1/T` for the key strength.
    """

    _equal_sizes_reason = "the score is an angle"

    def __init__(
        self,
        temperature: float = 1.0,
        trainable: bool = True,
        dropout: float = 0.0,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed=seed, trainable=trainable, **kwargs)
        self.temperature = check_positive("temperature", temperature)
        self.log_temperature: Any = None

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        super().build(queries_shape, keys_shape, values_shape)
        constant = keras.initializers.Constant(math.log(self.temperature))
        self.log_temperature = self.add_weight(shape=(), initializer=constant, autocast=False, name="log_temperature")

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return keys `B + (Tk, D)` divided by their norms."""
        return normalize_vectors(keys)

    def _project_queries(self, queries: Tensor) -> Tensor:
        return normalize_vectors(queries) * ops.cast(ops.exp(-self.log_temperature), dtype_of(queries))

    def _scoring(self, call: AttentionCall) -> Scoring:
        return make_dot_product_scoring(*self._project_inputs(call))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "temperature": self.temperature}
