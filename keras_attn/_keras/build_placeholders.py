"""Cast the float placeholders that Keras passes for lengths and masks when it loads a model.

A file does not tell the dtypes of the inputs of a subclassed model. To build it, Keras calls it on float32 placeholders
of their shapes, and where the call raises an error, all that is not built by then starts from fresh weights. A layer
that wants integers or booleans thus has to take such a placeholder for what will come.
"""

import keras
from keras import ops

from .._shapes import as_tensor, dtype_of
from .._types import Masks, Tensor
from .private_api import in_symbolic_scope


def convert_masks(masks: Masks) -> Masks:
    """Lengths and masks as tensors: of integers and of booleans, where placeholders stand for them."""
    lengths, *masks_ = masks
    return Masks(
        None if lengths is None else as_lengths(lengths), *(None if mask is None else as_mask(mask) for mask in masks_)
    )


def as_lengths(lengths: Tensor) -> Tensor:
    """Lengths as a tensor: of integers, if a placeholder stands for them."""
    return _convert_placeholder("int32", lengths)


def as_mask(mask: Tensor) -> Tensor:
    """A mask as a tensor: of booleans, if a placeholder stands for it."""
    return _convert_placeholder("bool", mask)


def _convert_placeholder(dtype: str, value: Tensor) -> Tensor:
    tensor = as_tensor(value)
    return ops.cast(tensor, dtype) if _is_placeholder(tensor) else tensor


def _is_placeholder(tensor: Tensor) -> bool:
    """Whether a float tensor exists only while Keras traces a call to build what it calls.

    Floats that come from a layer's caller are seen there too, and refused when the call is made in earnest. An input of
    a functional model tells its dtype.
    """
    is_float = keras.backend.is_float_dtype(dtype_of(tensor))
    return is_float and in_symbolic_scope() and not isinstance(tensor, keras.KerasTensor)
