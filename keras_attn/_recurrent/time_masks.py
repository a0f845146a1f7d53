"""Masks along the time axis."""

from typing import Any

from keras import ops

from .._maths.masks import hide, intersect, lengths_mask
from .._types import Tensor
from .call_checks import Masking


def steps_mask(mask: Tensor | None, lengths: Tensor | None, size: Any) -> Tensor | None:
    """True (B, T) where a mask and lengths let a position take part; None where there is neither."""
    return intersect(mask, None if lengths is None else lengths_mask(lengths, 2, size))


def without_padding(memory: Tensor, masking: Masking) -> Tensor:
    """Zeros where the memory is masked, before anything is computed of it: zero times NaN is NaN."""
    mask = steps_mask(masking.memory_mask, masking.valid_lens, ops.shape(memory)[1])
    return memory if mask is None else hide(memory, mask)


def last_output(outputs: Tensor, kept: Tensor | None) -> Tensor:
    """The output (B, size) of the last step that was made, of outputs (B, T, size); zeros if none was."""
    if kept is None:
        return outputs[:, -1]
    steps = ops.arange(1, ops.shape(outputs)[1] + 1, dtype="int32")
    last = ops.max(ops.where(kept, steps, 0), axis=1, keepdims=True)
    return ops.sum(ops.where(ops.expand_dims(ops.equal(steps, last), -1), outputs, 0.0), axis=1)
