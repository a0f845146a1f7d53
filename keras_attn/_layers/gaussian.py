"""Gaussian attention: kernel regression with a learned bandwidth."""

import math
from typing import Any

import keras
from keras import ops

from .._checks.constructor_arguments import check_positive
from .._maths.masks import mean_of_common_keys
from .._maths.normalizers import SOFTMAX
from .._maths.scores import append_squared_norms, gaussian_scores, uses_expanded_distance
from .._pooling.attention_call import AttentionCall
from .._pooling.attention_pooling import AttentionPooling
from .._pooling.composite import current_evaluator
from .._pooling.scoring import DISTANCE, Scoring
from .._shapes import at_least_float32
from .._types import Tensor
from .dot_product import make_dot_product_scoring


@keras.saving.register_keras_serializable(package="keras_attn")
class GaussianAttention(AttentionPooling):
    """Attention pooling with a Gaussian kernel, for queries and keys of one size D: Nadaraya-Watson regression.

    `score(q, k) = -||q - k||^2 / (2 h^2)`, with the bandwidth `h = exp(log_bandwidth)`.

    Args:
        bandwidth: Initial value of h, above 0.
        trainable: True to train the bandwidth.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the random draws of the dropout, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`, with Dq equal to Dk.

    Numerics:
        Distances are computed in float32 at least. Up to D = 8 they are sums of squared differences, `B Tq Tk D`
        numbers that are accurate even far from the origin. For larger D they are expanded to dot products of vectors
        relative to the mean of the keys that are unmasked for all queries. The error of a score is then about
        `1e-7 (r / h)^2`, where r is the largest distance from that mean.

    Example:
        >>> layer = GaussianAttention(bandwidth=0.5)
        >>> y_hat = layer(x[None, :, None], x_train[None, :, None], y_train[None, :, None])

    Source: Nadaraya 1964 and Watson 1964; Zhang, Lipton, Li and Smola, Dive into Deep Learning, section 11.2. If all
        keys have the same norm, the weights equal those of dot products with scale `1 / h^2`, section 11.3.
    """

    _equal_sizes_reason = "the score is a distance"

    def __init__(
        self,
        bandwidth: float = 1.0,
        trainable: bool = True,
        dropout: float = 0.0,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dropout, seed=seed, trainable=trainable, **kwargs)
        self.bandwidth = check_positive("bandwidth", bandwidth)
        self.log_bandwidth: Any = None

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        super().build(queries_shape, keys_shape, values_shape)
        constant = keras.initializers.Constant(math.log(self.bandwidth))
        self.log_bandwidth = self.add_weight(shape=(), initializer=constant, autocast=False, name="log_bandwidth")

    def _scoring(self, call: AttentionCall) -> Scoring:
        """Return the scoring `-||q - k||^2 / (2 h^2)`."""
        # An exporter gets expanded distances as dot products of extended vectors, for which it has more forms.
        queries, keys = self._project_inputs(call)
        bandwidth = ops.exp(self.log_bandwidth)
        is_full_call = call.values is not None and call.heads is None
        if current_evaluator() is None or not is_full_call or queries.shape[-1] is None:
            name = None
        elif not uses_expanded_distance(queries):
            name = DISTANCE
        else:
            extended = append_squared_norms(queries, keys, bandwidth, with_query_terms=self.normalizer != SOFTMAX)
            return make_dot_product_scoring(*extended)
        return Scoring(name, gaussian_scores, {"queries": queries, "keys": keys, "bandwidth": bandwidth})

    def _zero_masked_inputs(self, call: AttentionCall, mask: Tensor | None) -> AttentionCall:
        """Zero fully masked inputs, and center queries and keys if the distance is expanded."""
        # A common shift does not change distances, but makes the terms of the expansion, and their errors, small.
        call = super()._zero_masked_inputs(call, mask)
        if not self._has_builtin_scoring or not uses_expanded_distance(call.queries):
            return call
        queries, keys = at_least_float32(call.queries), at_least_float32(call.keys.tensor)
        center = ops.stop_gradient(mean_of_common_keys(mask, keys))
        return call._replace(queries=queries - center, keys=call.keys._replace(tensor=keys - center))

    def _mask_changes_scoring(self, call: AttentionCall) -> bool:
        """Return True if the distance is expanded, so that queries and keys are centered."""
        return uses_expanded_distance(call.queries)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bandwidth": self.bandwidth}
