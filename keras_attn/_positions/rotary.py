"""Rotary position embedding."""

from typing import Any

import keras
from keras import ops

from .._checks.call_arguments import check_given, check_offset, make_positions
from .._checks.constructor_arguments import check_flag, check_positive, check_positive_integer
from .._maths.heads import ROLES
from .._shapes import at_least_float32, dtype_of, shape_of
from .._types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_attn")
class RotaryEmbedding(keras.layers.Layer):
    """Rotates queries and keys by angles that grow with the position, so that dot products depend on distances.

    At position `p` the pair `(a, b)` number `i`, from 0, becomes `(a cos - b sin, b cos + a sin)` of the angle
    `p scale base^(-2 i / size)`. The dot product of a query at `p` and a key at `r` then depends on `p - r` alone.

    Args:
        base: Its powers are the wavelengths; above 0.
        interleaved: Whether a pair is two neighbouring entries, `2 i` and `2 i + 1` (RoFormer, GPT-J). Otherwise it is
            `i` and `i + size / 2` (GPT-NeoX, Llama, `keras_hub.layers.RotaryEmbedding`).
        size: How many entries to rotate, from the first on; an even number. None for all. The others do not change.
        scale: Factor of the positions: with 0.25, four times as many positions fit into the angles that a model was
            trained on. It is `1 / scaling_factor` of `keras_hub`.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`.

    Call arguments:
        heads: Floats `B + (T, D)` with any number of leading axes, heads among them.
        role: `"queries"`, `"keys"`, or `"values"`. Values do not change.
        offset: Position of the first of the T: one integer, or integers for the first axis, one for each example. Pass
            a tensor if it changes from call to call.

    Returns:
        The rotated heads, in the shape and dtype of the input, whatever the dtype of the layer.

    Masking:
        A Keras mask is passed on. Each position is rotated independently.

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
            raise ValueError(f"`size` must be even: entries turn in pairs. Received: size={size}.")

    def build(self, heads_shape: Any = None) -> None:
        """Makes no weights."""

    def call(self, heads: Tensor, role: str = "queries", offset: Any = 0) -> Tensor:
        size, offset = self._validate_call(heads, role, offset)
        if size == 0:
            return heads
        rotated, unrotated = at_least_float32(heads[..., :size]), heads[..., size:]
        positions = make_positions(offset, ops.shape(heads)[-2])
        angles = ops.expand_dims(ops.cast(positions, dtype_of(rotated)), -1) * self._frequencies(
            size, dtype_of(rotated)
        )
        if len(offset.shape) > 0:  # axes between those of the offset and the positions
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
        """The angle from one position to the next for each pair, (size / 2,)."""
        return ops.convert_to_tensor([self.scale * self.base ** (-i / size) for i in range(0, size, 2)], dtype)

    def _validate_call(self, heads: Tensor, role: Any, offset: Any) -> tuple[int, Tensor]:
        """How many entries turn, none of those of values, and the offset as a tensor."""
        check_given(heads=heads)
        shape = shape_of(heads)
        if not keras.backend.is_float_dtype(dtype_of(heads)):
            raise TypeError(
                f"`heads` must be floats. Received: heads dtype {dtype_of(heads)}. Embed ids before they are turned."
            )
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
                    "`size` must be at most D, the last axis of `heads`: it is how many of the D entries turn. "
                    f"Received: size={size}, heads shape {shape}."
                )
            return size
        if last_size is None:
            raise ValueError(
                "The last axis of `heads` must be known unless `size` is given: it says how entries pair up. "
                f"Received: heads shape {shape}. Give the size in `keras.Input`, or `size` to the layer."
            )
        if last_size % 2:
            raise ValueError(
                "The last axis of `heads` must be even: entries turn in pairs. "
                f"Received: heads shape {shape}. Give an even `size` below that to the layer."
            )
        return last_size

    def get_config(self) -> dict[str, Any]:
        options = {"base": self.base, "interleaved": self.interleaved, "size": self.size, "scale": self.scale}
        return {**super().get_config(), **options}


def _rotate_pairs(vectors: Tensor, angles: Tensor, *, interleaved: bool) -> Tensor:
    """Vectors `B + (T, D)`, each pair of their entries turned by its angle, which broadcast to `B + (T, D/2)`."""
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
