"""Gaussian attention."""

import math
from typing import Any

import keras
from keras import ops

from .._checks.arguments import check_positive
from .._checks.tensors import check_same_size
from .._maths.masks import mean_seen_by_all
from .._maths.normalizers import SOFTMAX
from .._maths.scores import by_products, gaussian_scores
from .._pooling.composite import DISTANCE, Scoring
from .._pooling.pooling import AttentionPooling
from .._states.state import Keys
from .._tensors import Shape, Tensor, at_least_float32, dtype_of
from .dot_product import scoring_by_dot_products


@keras.saving.register_keras_serializable(package="keras_attn")
class GaussianAttention(AttentionPooling):
    """Attention pooling with a Gaussian kernel, for queries and keys of one size D: Nadaraya-Watson regression.

    `score(q, k) = -||q - k||^2 / (2 h^2)`, with the bandwidth `h = exp(log_bandwidth)`.

    Args:
        bandwidth: h at the start, above 0.
        trainable: Whether the bandwidth is trained.
        dropout: Share of the weights dropped in training, at least 0 and less than 1.
        seed: Integer that fixes the draws of the dropout, or None.
        **kwargs: `normalizer`, and arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns, Masking, Raises: those of `AttentionPooling`, with Dq equal to Dk.

    Numerics:
        Distances are taken in float32 at least: for D up to 8 from each difference, which is exact for coordinates far
        from the origin too and takes `B Tq Tk D` numbers. For larger D they are taken from dot products, of positions
        from the mean of the keys that all queries see: a score is then off by some `1e-7 (r / h)^2`, with r the largest
        distance from that mean.

    Example:
        >>> layer = GaussianAttention(bandwidth=0.5)
        >>> y_hat = layer(x[None, :, None], x_train[None, :, None], y_train[None, :, None])

    Source: Nadaraya 1964 and Watson 1964; Zhang, Lipton, Li and Smola, Dive into Deep Learning, section 11.2. With keys
        of equal length the weights are those of dot products with scale `1 / h^2`, section 11.3.
    """

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

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree, Dq and Dk among them."""
        super().check_shapes(queries_shape, keys_shape, values_shape)
        check_same_size("the score is a distance", queries_shape, keys_shape)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Makes the bandwidth."""
        super().build(queries_shape, keys_shape, values_shape)
        start = keras.initializers.Constant(math.log(self.bandwidth))
        self.log_bandwidth = self.add_weight(shape=(), initializer=start, autocast=False, name="log_bandwidth")

    def projected_size(self, queries_size: int | None) -> int | None:
        """D."""
        return queries_size

    def score_projected(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Gaussian scores of queries `B + (Tq, D)` and keys `B + (Tk, D)`."""
        return gaussian_scores(queries, keys, ops.exp(self.log_bandwidth))

    def _without_unseen(self, mask: Tensor | None, queries: Tensor, keys: Keys) -> tuple[Tensor, Keys]:
        """Positions from a mean, where products are taken: distances stay as they are, and their parts get small."""
        queries, keys = super()._without_unseen(mask, queries, keys)
        if not self._score_is_described or not by_products(queries):
            return queries, keys
        queries, points = at_least_float32(queries), at_least_float32(keys.tensor)
        centre = ops.stop_gradient(mean_seen_by_all(mask, points))
        return queries - centre, keys._replace(tensor=points - centre)

    def _scoring(self, queries: Tensor, keys: Keys) -> Scoring | None:
        """Distances, or dot products of longer vectors where `gaussian_scores` takes products."""
        if queries.shape[-1] is None:
            return None
        bandwidth = ops.cast(ops.exp(self.log_bandwidth), dtype_of(queries))
        if not by_products(queries):
            tensors = {"queries": queries, "keys": keys.tensor, "bandwidth": bandwidth}
            return Scoring(DISTANCE, gaussian_scores, tensors, {})
        queries, points = queries / bandwidth, keys.tensor / bandwidth
        of_queries, of_keys = (-0.5 * ops.sum(x * x, axis=-1, keepdims=True) for x in (queries, points))
        parts = [(queries, points), (ops.ones_like(of_queries), of_keys)]
        if self.normalizer != SOFTMAX:  # which does not see what is the same for all keys of a query
            parts.append((of_queries, ops.ones_like(of_keys)))
        longer_queries, longer_keys = (ops.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
        return scoring_by_dot_products(longer_queries, longer_keys, 1.0)

    def _centres_keys(self, queries: Tensor) -> bool:
        """Whether products are taken."""
        return by_products(queries)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make this layer again."""
        return {**super().get_config(), "bandwidth": self.bandwidth}
