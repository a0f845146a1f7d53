"""Rotary position embedding (RoPE)."""

from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_not_none, check_offset, make_positions
from .._checks.constructor_arguments import check_flag, check_positive, check_positive_integer
from .._maths.heads import ROLES
from .._shapes import at_least_float32, dtype_of, shape_of
from .._types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class RotaryEmbedding(keras.layers.Layer):
    """Rotation of queries and keys by angles proportional to their positions, also known as RoPE.

    At position `p` pair number `i`, from 0, `(a, b)`, becomes `(a cos t - b sin t, b cos t + a sin t)` with the angle
    `t = p scale base^(-2 i / size)`. The dot product of a query at `p` and a key at `r` depends on `p - r` only.

    Args:
        base: Base of the frequencies, above 0.
        interleaved: True to pair the adjacent entries `2 i` and `2 i + 1` (RoFormer, GPT-J), False to pair `i` and
            `i + size / 2` (GPT-NeoX, Llama, `keras_hub.layers.RotaryEmbedding`).
        size: Number of entries to rotate, from the first one, even; the remaining entries do not change. None for all.
        scale: Factor of the positions. A scale of 0.25 maps four times as many positions to the range of angles that a
            model was trained on. It is `1 / scaling_factor` of `keras_hub`.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`.

    Call arguments:
        heads: Floats `B + (T, D)` with any number of leading axes, which may include a head axis.
        role: `"queries"`, `"keys"`, or `"values"`. Values do not change.
        offset: Position of the first row: an integer, or integers for the first axis, one per example. Pass a tensor if
            it changes from call to call.

    Returns:
        The rotated heads, in the shape and dtype of the input, for any dtype of the layer.

    Masking:
        An implicit Keras mask is propagated. Each position is rotated independently.

    Numerics:
        Angles and products are computed in float32 at least. The rounding error of an angle at position `p` is about
        `1e-7 p`.

    Raises:
        TypeError: If heads are not floats or the offset is not integers.
        ValueError: If the last axis is odd, unknown or too small, or the offset does not agree with the first axis.

    Example:
        >>> turn = RotaryEmbedding()
        >>> scores = keras.ops.matmul(turn(queries), keras.ops.swapaxes(turn(keys, role="keys"), -2, -1))

    Source: Su et al. 2021, equations 14 and 15; the scale: Chen et al. 2023.
    """

    def __init__(
        self,
        base: float = 10000.0,
        *,
        interleaved: bool = False,
        size: int | None = None,
        scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # heads keep their dtype
        self.supports_masking = True
        self.base, self.scale = check_positive("base", base), check_positive("scale", scale)
        self.interleaved = check_flag("interleaved", interleaved)
        self.size = None if size is None else check_positive_integer("size", size)
        if self.size is not None and self.size % 2:
            raise ValueError(f"`size` must be even: entries are rotated in pairs. Received: size={size}.")

    def build(self, heads_shape: Any = None) -> None:
        """Create no weights."""

    def call(self, heads: Tensor, role: str = "queries", offset: Any = 0) -> Tensor:
        size, offset = self._validate_call(heads, role, offset)
        if size == 0:
            return heads
        rotated, unrotated = at_least_float32(heads[..., :size]), heads[..., size:]
        dtype = dtype_of(rotated)
        positions = make_positions(offset, ops.shape(heads)[-2])
        angles = ops.expand_dims(ops.cast(positions, dtype), -1) * self._frequencies(size, dtype)
        if len(offset.shape) > 0:  # insert the axes between offset and positions, such as heads
            for _ in range(len(heads.shape) - len(angles.shape)):
                angles = ops.expand_dims(angles, -3)
        rotated = ops.cast(_rotate_pairs(rotated, angles, interleaved=self.interleaved), dtype_of(heads))
        return rotated if unrotated.shape[-1] == 0 else ops.concatenate([rotated, unrotated], axis=-1)

    def compute_output_spec(self, heads: Tensor, role: str = "queries", offset: Any = 0) -> Tensor:
        self._validate_call(heads, role, offset)
        return keras.KerasTensor(shape_of(heads), dtype=dtype_of(heads))

    def compute_output_shape(self, heads_shape: Any, *_: Any, **__: Any) -> Any:
        return heads_shape

    def _frequencies(self, size: int, dtype: str) -> Tensor:
        """Return the angles between adjacent positions for all pairs, (size / 2,)."""
        return ops.convert_to_tensor([self.scale * self.base ** (-i / size) for i in range(0, size, 2)], dtype)

    def _validate_call(self, heads: Tensor, role: Any, offset: Any) -> tuple[int, Tensor]:
        """Validate a call; return the number of entries to rotate, 0 for values, and the offset as a tensor."""
        check_not_none(heads=heads)
        shape = shape_of(heads)
        if not keras.backend.is_float_dtype(dtype_of(heads)):
            raise TypeError(f"`heads` must be floats. Received: heads dtype {dtype_of(heads)}. Embed ids first.")
        if len(shape) < 2:
            raise ValueError(
                "`heads` must have at least 2 axes, positions and features, with any number of axes before them. "
                f"Received: heads shape {shape}. Add the axis that is missing."
            )
        if role not in ROLES:
            raise ValueError(f"`role` must be one of {', '.join(ROLES)}. Received: role={role!r}.")
        offset = check_offset(offset, "heads", shape[:-2], heads=True)
        return (0 if role == "values" else self._rotated_size(shape)), offset

    def _rotated_size(self, shape: Shape) -> int:
        last_size, size = shape[-1], self.size
        if size is not None:
            if last_size is not None and size > last_size:
                raise ValueError(
                    "`size` must be at most D, the last axis of `heads`: the number of entries to rotate. "
                    f"Received: size={size}, heads shape {shape}."
                )
            return size
        if last_size is None:
            raise ValueError(
                "The last axis of `heads` must be known unless `size` is passed, since it determines the pairs. "
                f"Received: heads shape {shape}. Set the size in `keras.Input`, or pass `size` to the layer."
            )
        if last_size % 2:
            raise ValueError(
                "The last axis of `heads` must be even: entries are rotated in pairs. "
                f"Received: heads shape {shape}. Pass a smaller even `size` to the layer."
            )
        return last_size

    def get_config(self) -> dict[str, Any]:
        options = {"base": self.base, "interleaved": self.interleaved, "size": self.size, "scale": self.scale}
        return {**super().get_config(), **options}


def _rotate_pairs(vectors: Tensor, angles: Tensor, *, interleaved: bool) -> Tensor:
    """Rotate pairs of entries of vectors `B + (T, D)` by angles that broadcast to `B + (T, D/2)`."""
    half = vectors.shape[-1] // 2
    if interleaved:
        pairs = ops.reshape(vectors, (*ops.shape(vectors)[:-1], half, 2))
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = vectors[..., :half], vectors[..., half:]
    cos, sin = ops.cos(angles), ops.sin(angles)
    rotated = first * cos - second * sin, second * cos + first * sin
    if interleaved:
        return ops.reshape(ops.stack(rotated, axis=-1), ops.shape(vectors))
    return ops.concatenate(rotated, axis=-1)
