"""T5 relative position biases: one learned bias per head and distance bucket."""

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
    """Learned biases of the scores in each head, one for each bucket of distances between query and key, as in T5.

    `bias[h, i, j] = embeddings[bucket(j - i), h]`. Let `N` be the number of buckets for one direction, `E = N // 2` and
    `M = max_distance`. The first `E` buckets hold one distance `d` each. The others hold ranges that grow by a constant
    ratio, and the last one holds everything from about `M` on:

    `bucket(d) = d` for `d < E`, `min(E + floor((N - E) log(d / E) / log(M / E)), N - 1)` for others

    In both directions `N = num_buckets // 2`: the first N buckets are for the query's own position and the keys before
    it, and the next N are for the keys after it. In one direction `N = num_buckets`, and all keys after the query are
    in bucket 0: a causal mask should hide them.

    Args:
        num_heads: H, the number of heads.
        num_buckets: The number of buckets.
        max_distance: M, above E. All keys at this distance or farther get the same bias.
        bidirectional: Whether keys after the query have buckets of their own.
        embeddings_initializer: Initializer of the biases, (num_buckets, H).
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries: `B + (Tq, Dq)`; only Tq is used.
        keys: `B + (Tk, Dk)`; only Tk is used. None for the queries. The positions of keys start at 0.
        offset: Position of the first query: one integer, or integers B, one for each example. Pass a tensor if it
            changes from call to call.

    Returns:
        Biases (1, H, Tq, Tk) in the layer's dtype, or `B + (H, Tq, Tk)` if each example has an offset. Pass them as
        `score_bias`.

    Masking:
        Masks are not read, and the biases carry none.

    Numerics:
        The first distance of each bucket is computed in integers, from `d^(N-E) >= M^k E^(N-E-k)` for bucket `E + k`.
        So no rounding of a logarithm puts a distance into the wrong bucket. The authors' code takes logarithms in
        float32. With T5's sizes it gives the same buckets. With some others, such as 36 buckets for one direction and
        M=392, it is off by one at a boundary that is an integer.

    Raises:
        TypeError: If the offset is not integers.
        ValueError: If an axis is missing, or the offset does not agree with the batch.

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
        if self._direction_buckets < 2:
            raise ValueError(
                "`num_buckets` must be at least 2 for each direction that has buckets. "
                f"Received: num_buckets={num_buckets}, bidirectional={bidirectional}."
            )
        if self.max_distance <= self._direction_buckets // 2:
            raise ValueError(
                "`max_distance` must be above the number of buckets that hold one distance each, here "
                f"{self._direction_buckets // 2}. Received: max_distance={max_distance}, num_buckets={num_buckets}, "
                f"bidirectional={bidirectional}."
            )
        self._bucket_starts = np.array(compute_bucket_starts(self._direction_buckets, self.max_distance), "int32")

    @property
    def _direction_buckets(self) -> int:
        return self.num_buckets // 2 if self.bidirectional else self.num_buckets

    def build(self, queries_shape: Any = None) -> None:
        shape = (self.num_buckets, self.num_heads)
        self.embeddings = self.add_weight(shape=shape, initializer=self.embeddings_initializer, name="embeddings")

    def _compute_biases(self, relative_positions: Tensor) -> Tensor:
        distances = ops.abs(relative_positions) if self.bidirectional else ops.maximum(-relative_positions, 0)
        is_reached = ops.greater_equal(ops.expand_dims(distances, -1), ops.convert_to_tensor(self._bucket_starts))
        buckets = ops.sum(ops.cast(is_reached, "int32"), axis=-1)
        if self.bidirectional:
            buckets = ops.where(relative_positions > 0, buckets + self._direction_buckets, buckets)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), buckets, axis=0)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


def compute_bucket_starts(num_buckets: int, max_distance: int) -> list[int]:
    """Return the least distance in each bucket but the first, for N buckets of one direction and distances up to M.

    A distance is in bucket `b` when it has reached `b` of them.
    """
    num_exact = num_buckets // 2
    num_wide = num_buckets - num_exact
    # log(d/E) (N-E) / log(M/E) >= k is (d/E)^(N-E) >= (M/E)^k, since M > E
    powers = (max_distance**step * num_exact ** (num_wide - step) for step in range(1, num_wide))
    return [*range(1, num_exact + 1), *(_ceil_root(num_wide, power) for power in powers)]


def _ceil_root(exponent: int, power: int) -> int:
    """The least whole number whose power is at least that: a root, rounded up."""
    root = round(math.exp(math.log(power) / exponent))  # may be off by rounding
    while root**exponent < power:
        root += 1
    while (root - 1) ** exponent >= power:
        root -= 1
    return root
