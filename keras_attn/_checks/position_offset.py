"""Validate position offsets and compute positions from them."""

from typing import Any

from keras import ops

from .._keras.build_placeholders import as_lengths
from .._shapes import shape_of, shapes_agree
from .._types import Shape, Tensor
from .call_arguments import check_integers


def check_offset(offset: Any, owner: str, batch_shape: Shape, *, heads: bool = False) -> Tensor:
    """Returns an offset as a tensor, checked: one integer for all, or one for each example.

    Args:
        offset: What the caller passed.
        owner: The name of the tensor whose first position it is.
        batch_shape: The axes B of that tensor; of heads, also one or more that the offset may lack.
        heads: Whether it is one of heads.
    """
    if offset is None:
        raise TypeError("`offset` must be integers. Received: offset=None. Leave it out where positions start at 0.")
    offset = as_lengths(offset)
    check_integers("offset", ": it is a position", offset)
    shape = shape_of(offset)
    expected = batch_shape[: len(shape)] if heads or not shape else batch_shape
    if not shapes_agree(shape, expected):
        raise ValueError(
            f"`offset` must be one integer, or one for each example: the leading axes of `{owner}`. "
            f"Received: offset shape {shape}, {owner} with the leading axes {batch_shape}. Reshape or repeat it."
        )
    return offset


def positions_from(offset: Tensor, length: Any) -> Tensor:
    """Positions `offset`, `offset + 1`, ... of so many steps: int32, the axes of the offset and then `(length,)`."""
    return ops.expand_dims(ops.cast(offset, "int32"), -1) + ops.arange(length, dtype="int32")
