"""Validation of shapes and dtypes of call arguments.

The checks use static shapes and dtypes only, so they also run on symbolic tensors. An unknown size (None) passes. A
failed check raises TypeError for a dtype and ValueError for a shape.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from .._keras.build_placeholders import convert_lengths
from .._shapes import dtype_of, merge_shapes, shape_of, shapes_agree, sizes_agree
from .._types import Masks, Shape, Tensor

_MASK_HINTS = {"attention_mask": "; a mask of the keys, B + (Tk,), is `keys_mask`"}


def check_pooling_shapes(queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
    """Check that queries `B + (Tq, Dq)`, keys `B + (Tk, Dk)` and values `B + (Tk, Dv)` fit each other."""
    received = f"Received: queries shape {queries_shape}, keys shape {keys_shape}, values shape {values_shape}."
    for name, shape, axes in (
        ("queries", queries_shape, "(Tq, Dq)"),
        ("keys", keys_shape, "(Tk, Dk)"),
        ("values", values_shape, "(Tk, Dv)"),
    ):
        check_rank(name, shape, axes, received)
    for name, shape in (("keys", keys_shape), ("values", values_shape)):
        if not shapes_agree(shape[:-2], queries_shape[:-2]):
            raise ValueError(
                f"`{name}` must have the batch axes of `queries`. {received} "
                "Repeat the smaller one along the batch axes that differ."
            )
    if not sizes_agree(keys_shape[-2], values_shape[-2]):
        raise ValueError(
            f"`keys` and `values` must agree in Tk, their last axis but one: each key has one value. {received} "
            "Pass as many values as keys."
        )


def check_rank(name: str, shape: Shape, axes: str, received: str | None = None) -> None:
    """Check that a shape has at least one batch axis before its last two axes, which `axes` names."""
    if len(shape) < 3:
        raise ValueError(
            f"`{name}` must have at least 3 axes: one or more batch axes, then {axes}. "
            f"{received or f'Received: {name} shape {shape}.'} "
            "Add the axis that is missing, for example with `keras.ops.expand_dims`."
        )


def check_integers(name: str, reason: str, *tensors: Tensor) -> None:
    """Check that lengths, positions or segment ids are integers."""
    for tensor in tensors:
        if not keras.backend.is_int_dtype(dtype_of(tensor)):
            raise TypeError(
                f"`{name}` must be integers{reason}. Received: {name} dtype {dtype_of(tensor)}. "
                f'Cast with `keras.ops.cast({name}, "int32")`; a boolean mask is `keys_mask` or `attention_mask`.'
            )


def check_not_none(**arguments: Any) -> None:
    """Check that no argument is None."""
    for name, value in arguments.items():
        if value is None:
            raise ValueError(
                f"`{name}` must be a tensor. Received: {name}=None. If the keys are also the values, pass them twice."
            )


def check_not_complex(**tensors: Tensor) -> None:
    """Check that no tensor is complex, since a cast to floats would drop the imaginary part."""
    for name, tensor in tensors.items():
        if dtype_of(tensor).startswith("complex"):
            raise TypeError(
                f"`{name}` must be real numbers. Received: {name} dtype {dtype_of(tensor)}. "
                "Concatenate real and imaginary parts on the last axis."
            )


def check_last_axis(name: str, shape: Shape, kernel: str, size: int | None) -> None:
    """Check that the last axis of an input is known and fits its kernel; `size` is None before the kernel exists."""
    if size is None and shape[-1] is None:
        raise ValueError(
            f"The last axis of `{name}` must be known: it is the size of the kernel `{kernel}`. "
            f"Received: {name} shape {shape}. Give the size in `keras.Input`."
        )
    if size is not None and not sizes_agree(shape[-1], size):
        raise ValueError(
            f"The last axis of `{name}` must be {size}, the size that the kernel `{kernel}` was built for. "
            f"Received: {name} shape {shape}. Use another layer for inputs of another size."
        )


def check_same_size(reason: str, queries_shape: Shape, keys_shape: Shape) -> None:
    """Check that queries `B + (Tq, D)` and keys `B + (Tk, D)` have the same D."""
    if not sizes_agree(queries_shape[-1], keys_shape[-1]):
        raise ValueError(
            f"`queries` and `keys` must agree in D, their last axis: {reason}. "
            f"Received: queries shape {queries_shape}, keys shape {keys_shape}. "
            "Project one of them with `keras.layers.Dense`, or use `BilinearAttention` or `AdditiveAttention`."
        )


def check_scores(scores: Tensor, name: str = "scores") -> None:
    """Check that scores or weights are floats `(..., Tq, Tk)`."""
    if len(shape_of(scores)) < 2:
        raise ValueError(
            f"`{name}` must have at least 2 axes: (..., Tq, Tk). Received: {name} shape {shape_of(scores)}. "
            f"Add the query axis, for example with `keras.ops.expand_dims({name}, -2)`."
        )
    if not keras.backend.is_float_dtype(dtype_of(scores)):
        raise TypeError(
            f"`{name}` must be floats: weights are fractions. Received: {name} dtype {dtype_of(scores)}. "
            f'Cast them with `keras.ops.cast({name}, "float32")`.'
        )


def check_valid_lens(valid_lens: Tensor, scores_shape: Shape) -> None:
    """Check that valid lengths are integers `B` or `B + (Tq,)` for scores `B + (Tq, Tk)`."""
    check_integers("valid_lens", "", valid_lens)
    shape = shape_of(valid_lens)
    if not any(shapes_agree(shape, scores_shape[:axes]) for axes in (-2, -1)):
        raise ValueError(
            "`valid_lens` must have shape (B,) or (B, Tq): one length for each example, or one for each query. "
            f"Received: valid_lens shape {shape}, scores shape {scores_shape}. Reshape or repeat the lengths."
        )


def _check_boolean(name: str, mask: Tensor) -> None:
    dtype = dtype_of(mask)
    if dtype != "bool":
        raise TypeError(
            f"`{name}` must be boolean, True at unmasked positions. Received: {name} dtype {dtype}. "
            f'Cast it with `keras.ops.cast({name}, "bool")`.'
        )


def check_attention_mask(name: str, mask: Tensor, scores_shape: Shape) -> None:
    """Check that a mask is boolean and broadcasts to scores `B + (Tq, Tk)`."""
    _check_boolean(name, mask)
    _check_broadcasts(name, mask, scores_shape)


def check_segment_ids(segment_ids: Any, queries_shape: Shape, keys_shape: Shape) -> tuple[Tensor, Tensor]:
    """Validate segment ids, one tensor `B + (T,)` or a pair; return the ids of queries and keys as tensors."""

    # A list of two rows of one tensor is not a pair: its items lack an axis.
    def rank_fits(ids: Any) -> bool:
        return len(ids.shape if hasattr(ids, "shape") else np.shape(ids)) == len(queries_shape) - 1

    is_pair = isinstance(segment_ids, tuple | list) and len(segment_ids) == 2 and any(map(rank_fits, segment_ids))
    pair = segment_ids if is_pair else (segment_ids, segment_ids)
    if pair[0] is None or pair[1] is None:
        raise ValueError("`segment_ids` must be one tensor, or a pair of them. Received: a pair with None. Pass both.")
    query_ids, key_ids = map(convert_lengths, pair)
    check_integers("segment_ids", ", equal for positions of one segment", query_ids, key_ids)
    shapes = shape_of(query_ids), shape_of(key_ids)
    if not all(map(shapes_agree, shapes, (queries_shape[:-1], keys_shape[:-1]))):
        raise ValueError(
            "`segment_ids` must have shape B + (T,) if queries and keys are the same sequence, or be a pair of tensors "
            f"B + (Tq,) and B + (Tk,). Received: segment_ids shapes {shapes}, queries shape {queries_shape}, keys "
            f"shape {keys_shape}. Pass a pair, with an id for each query and each key."
        )
    return query_ids, key_ids


def check_score_bias(bias: Tensor, scores_shape: Shape) -> None:
    """Check that a bias is floats and broadcasts to scores `B + (Tq, Tk)`."""
    if not keras.backend.is_float_dtype(dtype_of(bias)):
        raise TypeError(
            f"`score_bias` must be floats: it is added to scores. Received: score_bias dtype {dtype_of(bias)}. "
            "Pass a boolean mask as `attention_mask`."
        )
    _check_broadcasts("score_bias", bias, scores_shape)


def _check_broadcasts(name: str, tensor: Tensor, scores_shape: Shape) -> None:
    shape = shape_of(tensor)
    fits = len(shape) <= len(scores_shape) and all(
        size == 1 or sizes_agree(size, target)
        for size, target in zip(reversed(shape), reversed(scores_shape), strict=False)
    )
    if not fits:
        raise ValueError(
            f"`{name}` must broadcast to the scores, B + (Tq, Tk), or B + (H, Tq, Tk) of a layer with heads. "
            f"Received: {name} shape {shape}, scores shape {scores_shape}. "
            f"Give each axis of `{name}` the size of the scores' axis, or 1{_MASK_HINTS.get(name, '')}."
        )


def check_position_mask(name: str, mask: Tensor, owner: str, owner_shape: Shape) -> None:
    """Check that a mask is boolean and has an entry for each position of `owner`, `B + (T, D)`."""
    _check_boolean(name, mask)
    if not shapes_agree(shape_of(mask), owner_shape[:-1]):
        raise ValueError(
            f"`{name}` must have the shape of `{owner}` without its last axis. "
            f"Received: {name} shape {shape_of(mask)}, {owner} shape {owner_shape}. "
            "Masks of pairs of positions go into `attention_mask`."
        )


def infer_scores_shape(queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> Shape:
    """Return the static shape `B + (Tq, Tk)` of the scores; a size is known if any input with that axis has it."""
    batch_shape = merge_shapes(queries_shape[:-2], keys_shape[:-2], values_shape[:-2])
    return (*batch_shape, queries_shape[-2], *merge_shapes(keys_shape[-2:-1], values_shape[-2:-1]))


def check_masks(
    masks: Masks,
    bias: Tensor | None,
    queries_shape: Shape,
    keys_shape: Shape,
    values_shape: Shape,
    weights_shape: Shape,
) -> None:
    """Check the shapes and dtypes of all masks and of the bias of a call.

    The weights are `B + (Tq, Tk)` or `B + (H, Tq, Tk)`; with a head axis, attention mask and bias may have one too.
    """
    scores_shape = infer_scores_shape(queries_shape, keys_shape, values_shape)
    if masks.valid_lens is not None:
        check_valid_lens(masks.valid_lens, scores_shape)
    if masks.attention_mask is not None:
        has_heads = len(masks.attention_mask.shape) == len(weights_shape)
        check_attention_mask("attention_mask", masks.attention_mask, weights_shape if has_heads else scores_shape)
    if bias is not None:
        check_score_bias(bias, weights_shape if len(bias.shape) == len(weights_shape) else scores_shape)
    for name, mask, owner, shape in (
        ("queries_mask", masks.queries_mask, "queries", queries_shape),
        ("keys_mask", masks.keys_mask, "keys", keys_shape),
        ("values_mask", masks.values_mask, "values", values_shape),
    ):
        if mask is not None:
            check_position_mask(name, mask, owner, shape)


def check_score_result(name: str, shape: Shape, scores_shape: Shape) -> None:
    """Check the shape of the scores that the method `score` of the class `name` returned."""
    if not shapes_agree(shape, scores_shape):
        raise ValueError(
            f"`{name}.score` must return scores of shape B + (Tq, Tk), here {scores_shape}. "
            f"Received: scores shape {shape}. Return one score for each pair of a query and a key."
        )


def check_offset(offset: Any, owner: str, batch_shape: Shape, *, heads: bool = False) -> Tensor:
    """Validate an offset, an integer or integers of shape `batch_shape`, the batch axes of `owner`; return a tensor.

    If `heads` is True, the offset may lack trailing axes of `batch_shape`, such as the head axis.
    """
    if offset is None:
        raise TypeError("`offset` must be integers. Received: offset=None. Leave it out if positions start at 0.")
    offset = convert_lengths(offset)
    check_integers("offset", ": it is a position", offset)
    shape = shape_of(offset)
    expected = batch_shape[: len(shape)] if heads or not shape else batch_shape
    if not shapes_agree(shape, expected):
        raise ValueError(
            f"`offset` must be one integer, or one for each example: the leading axes of `{owner}`. "
            f"Received: offset shape {shape}, {owner} with the leading axes {batch_shape}. Reshape or repeat it."
        )
    return offset


def make_positions(offset: Tensor, length: Any) -> Tensor:
    """Return positions `offset`, ..., `offset + length - 1`, int32 `B + (length,)`, of an offset `B` or ()."""
    return ops.expand_dims(ops.cast(offset, "int32"), -1) + ops.arange(length, dtype="int32")
