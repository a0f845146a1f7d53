"""ALiBi: score biases that decrease linearly with distance."""

import keras
import numpy as np
from keras import ops

from .._shapes import accumulation_dtype
from .._types import Tensor
from .position_bias import PositionBias


@keras.saving.register_keras_serializable(package="keras_attn")
class LinearBias(PositionBias):
    """ALiBi: score biases that decrease linearly with the distance of query and key, with a slope for each head.

    `bias[h, i, j] = -slope[h] |i - j|`, with `slope[h] = 2^(-8 (h + 1) / H)` for `h` from 0, if H is a power of two.
    For other numbers of heads, let P be the next lower power of two: the slopes are those of P heads, followed by every
    other slope of `2 P` heads, beginning with the first. Nothing is learned.

    Args:
        num_heads: H, the number of heads.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        queries: `B + (Tq, Dq)`; only Tq is used.
        keys: `B + (Tk, Dk)`; only Tk is used. None for the queries. The positions of keys start at 0.
        offset: Position of the first query: an integer, or integers `B`, one per example. Pass a tensor if it changes
            from call to call.

    Returns:
        Biases (1, H, Tq, Tk) in the layer's dtype, or `B + (H, Tq, Tk)` if each example has an offset. Pass them as
        `score_bias`.

    Masking:
        Implicit masks of the inputs are ignored, and the biases have none. Keys after the query get the same bias as
        keys before it; the authors use a causal mask.

    Numerics:
        Computed in float32 at least, and rounded once. Clipped at -65504 in float16.

    Raises:
        TypeError: If the offset is not integers.
        ValueError: If an axis is missing, or the offset does not agree with the batch.

    Example:
        >>> attend = MultiHeadAttention(DotProductAttention(), num_heads=4)
        >>> output = attend(x, x, x, score_bias=LinearBias(num_heads=4)(x), use_causal_mask=True)

    Source: Press, Smith and Lewis 2022, section 3, and their code for numbers of heads that are not powers of two.
    """

    def _compute_biases(self, relative_positions: Tensor) -> Tensor:
        dtype = accumulation_dtype(self.compute_dtype)
        distances = ops.expand_dims(ops.cast(ops.abs(relative_positions), dtype), -1)
        biases = distances * ops.convert_to_tensor([-slope for slope in _compute_slopes(self.num_heads)], dtype)
        if self.compute_dtype == "float16":
            # With minus infinity, the softmax of a query with only distant unmasked keys would be NaN.
            biases = ops.maximum(biases, float(np.finfo("float16").min))
        return ops.cast(biases, self.compute_dtype)


def _compute_slopes(num_heads: int) -> list[float]:
    """Return the slopes of all heads, (H,)."""
    power = 1 << (num_heads.bit_length() - 1)  # largest power of two up to H
    slopes = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
    return slopes if power == num_heads else slopes + _compute_slopes(2 * power)[0::2][: num_heads - power]
