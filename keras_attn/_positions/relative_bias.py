"""Relative position biases of T5: one learned bias for each head and each bucket of distances."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from .._checks.constructor_arguments import check_flag, check_positive_integer
from .._types import Tensor
from .position_bias import PositionBias


@keras.saving.register_keras_serializable(package="keras_attn")
class RelativePositionBias(PositionBias):
    """Learned score biases, one for each head and each bucket of distances between query and key, as in T5.

    `bias[h, i, j] = embeddings[bucket(j - i), h]`. N is the number of buckets for one direction, `E = N // 2` and
    `M = max_distance`. Each of the first E buckets holds one distance d. The others hold ranges of distances that grow
    by a constant ratio. The last range has no end. It begins at 91 for the default arguments, and never after M.

    `bucket(d) = d` for `d < E`, `min(E + floor((N - E) log(d / E) / log(M / E)), N - 1)` for `d >= E`

    If `bidirectional` is True, `N = num_buckets // 2`: the first N buckets are for keys up to the query's position, the
    next N for later keys. Otherwise `N = num_buckets`, and all later keys are in bucket 0: then use a causal mask.

    Args:
        num_heads: H, the number of heads.
        num_buckets: The number of buckets.
        max_distance: M, which must be above E. All keys of one direction at distance M or more get the same bias.
        bidirectional: True if keys after the query have their own buckets.
        embeddings_initializer: Initializer of the biases, (num_buckets, H).
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments, Returns: those of `LinearBias`.

    Raises:
        TypeError: If an argument has a wrong type.
        ValueError: If a number is not positive, N is below 2, M is not above E, or for the reasons of `LinearBias`.

    Masking:
        Implicit masks of the inputs are ignored. The biases have no mask.

    Numerics:
        Exact: the first distance of each bucket is computed in integers. The authors' code computes logarithms in
        float32. With T5's sizes both give the same buckets. With other sizes, such as N=36 and M=392, their code rounds
        so that the first distance of a bucket falls into the bucket before.

    Example:
        >>> position_bias = RelativePositionBias(num_heads=4)
        >>> output = MultiHeadAttention(DotProductAttention(), num_heads=4)(x, x, x, score_bias=position_bias(x))

    Source: Raffel et al. 2020, section 2.1, and their code, `_relative_position_bucket`.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        *,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        self.num_buckets = check_positive_integer("num_buckets", num_buckets)
        self.max_distance = check_positive_integer("max_distance", max_distance)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        if self._num_direction_buckets < 2:
            raise ValueError(
                "`num_buckets` must be at least 2, or at least 4 with `bidirectional`. "
                f"Received: num_buckets={num_buckets}, bidirectional={bidirectional}."
            )
        if self.max_distance <= self._num_direction_buckets // 2:
            raise ValueError(
                f"`max_distance` must be above {self._num_direction_buckets // 2}: smaller distances have own buckets. "
                f"Received: max_distance={max_distance}, num_buckets={num_buckets}, bidirectional={bidirectional}."
            )
        self._bucket_starts = np.array(compute_bucket_starts(self._num_direction_buckets, self.max_distance), "int32")

    @property
    def _num_direction_buckets(self) -> int:
        return self.num_buckets // 2 if self.bidirectional else self.num_buckets

    def build(self, queries_shape: Any = None) -> None:
        shape = (self.num_buckets, self.num_heads)
        self.embeddings = self.add_weight(shape=shape, initializer=self.embeddings_initializer, name="embeddings")

    def _compute_biases(self, relative_positions: Tensor) -> Tensor:
        distances = ops.abs(relative_positions) if self.bidirectional else ops.maximum(-relative_positions, 0)
        # The bucket of a distance is the number of bucket starts that are at most this distance.
        is_reached = ops.greater_equal(ops.expand_dims(distances, -1), ops.convert_to_tensor(self._bucket_starts))
        buckets = ops.sum(ops.cast(is_reached, "int32"), axis=-1)
        if self.bidirectional:
            buckets = ops.where(relative_positions > 0, buckets + self._num_direction_buckets, buckets)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), buckets, axis=0)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


def compute_bucket_starts(num_direction_buckets: int, max_distance: int) -> list[int]:
    """Return the first distance of each bucket from 1 to N - 1; N, E and M are those of `RelativePositionBias`."""
    num_distance_buckets = num_direction_buckets // 2
    num_range_buckets = num_direction_buckets - num_distance_buckets
    # E is `num_distance_buckets`. Bucket E + k begins at the smallest d with (N-E) log(d/E) / log(M/E) >= k. As M > E,
    # this means (d/E)^(N-E) >= (M/E)^k. Both sides times E^(N-E) are integers: d^(N-E) >= M^k E^(N-E-k).
    powers = (max_distance**k * num_distance_buckets ** (num_range_buckets - k) for k in range(1, num_range_buckets))
    return [*range(1, num_distance_buckets + 1), *(_ceil_root(num_range_buckets, power) for power in powers)]


def _ceil_root(exponent: int, power: int) -> int:
    """Return the smallest integer `root` with `root**exponent >= power`."""
    # Rounding may make the float root wrong. The loops correct it in integers.
    root = round(math.exp(math.log(power) / exponent))
    while root**exponent < power:
        root += 1
    while (root - 1) ** exponent >= power:
        root -= 1
    return root
