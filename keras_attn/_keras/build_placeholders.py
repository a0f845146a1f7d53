"""Conversion of the float placeholders that Keras passes for lengths and masks when it loads a model.

The file of a subclassed model has the shapes but not the dtypes of its inputs. To build the model, Keras calls it on
float32 placeholders. If the call raises an error, Keras continues without the weights of the layers that are not built.
So a layer with integer or boolean arguments must accept float placeholders.
"""

import keras
from keras import ops

from .._shapes import as_tensor, dtype_of
from .._types import Masks, Tensor
from .private_api import in_symbolic_scope


def convert_masks(masks: Masks) -> Masks:
    """Convert all masks of a call with `convert_lengths` and `convert_mask`."""
    lengths, *boolean_masks = masks
    lengths = None if lengths is None else convert_lengths(lengths)
    return Masks(lengths, *(None if mask is None else convert_mask(mask) for mask in boolean_masks))


def convert_lengths(lengths: Tensor) -> Tensor:
    """Convert lengths of any shape to a tensor, and a float placeholder to int32."""
    return _convert_placeholder("int32", lengths)


def convert_mask(mask: Tensor) -> Tensor:
    """Convert a mask of any shape to a tensor, and a float placeholder to booleans."""
    return _convert_placeholder("bool", mask)


def _convert_placeholder(dtype: str, value: Tensor) -> Tensor:
    tensor = as_tensor(value)
    return ops.cast(tensor, dtype) if _is_placeholder(tensor) else tensor


def _is_placeholder(tensor: Tensor) -> bool:
    """Return True for a float tensor inside of a symbolic call, except an input of a functional model."""
    # Floats that a caller passes by mistake are accepted here, too, and refused when the layer runs.
    is_float = keras.backend.is_float_dtype(dtype_of(tensor))
    return is_float and in_symbolic_scope() and not isinstance(tensor, keras.KerasTensor)
