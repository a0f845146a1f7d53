"""Shape, dtype and size helpers for static and dynamic sizes.

A size is an integer if it is known, else a scalar tensor of the traced graph.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from ._types import Shape, Tensor


def as_tensor(value: Any) -> Tensor:
    """Convert a value to a tensor; return a tensor or `KerasTensor` unchanged."""
    return value if ops.is_tensor(value) or isinstance(value, keras.KerasTensor) else ops.convert_to_tensor(value)


def fast_reshape(tensor: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Reshape a tensor; the shape may have scalar tensors."""
    # On torch `keras.ops.reshape` takes ten times as long, because it searches the shape for tensors.
    return tensor.reshape(shape) if keras.backend.backend() == "torch" else ops.reshape(tensor, shape)


def shape_of(tensor: Tensor) -> Shape:
    """Return the static shape of a tensor, with None for unknown sizes."""
    return tuple(tensor.shape)


def dtype_of(tensor: Tensor) -> str:
    """Return the dtype of a tensor as a Keras string, such as "float32"."""
    return str(keras.backend.standardize_dtype(tensor.dtype))


def sizes_agree(first: int | None, second: int | None) -> bool:
    """Return True if two sizes can be equal; None is unknown."""
    return first is None or second is None or first == second


def shapes_agree(first: Shape, second: Shape) -> bool:
    """Return True if two static shapes can be equal."""
    return len(first) == len(second) and all(map(sizes_agree, first, second))


def merge_shapes(*shapes: Shape) -> Shape:
    """Merge compatible static shapes; a size is known if any of the shapes has it."""
    return tuple(next((size for size in sizes if size is not None), None) for sizes in zip(*shapes, strict=True))


def accumulation_dtype(dtype: str) -> str:
    """Return "float64" for "float64", else "float32", the dtype for sums: half precision loses digits in long sums."""
    return "float64" if dtype == "float64" else "float32"


def at_least_float32(tensor: Tensor) -> Tensor:
    """Cast a tensor to float32, unless it is float64."""
    return ops.cast(tensor, accumulation_dtype(dtype_of(tensor)))


def is_known_true(condition: Any) -> bool:
    """Return True if a condition on sizes is statically true; a condition on dynamic sizes is a tensor."""
    return condition is True


def max_size(size: Any, other_size: Any) -> Any:
    """Return the larger of two sizes."""
    return max(size, other_size) if _are_static(size, other_size) else ops.maximum(size, other_size)


def min_size(size: Any, other_size: Any) -> Any:
    """Return the smaller of two sizes."""
    return min(size, other_size) if _are_static(size, other_size) else ops.minimum(size, other_size)


def ceil_div(size: Any, divisor: Any) -> Any:
    """Divide sizes and round up."""
    # Not `-(-size // divisor)`: integer division in ONNX rounds negative quotients towards zero.
    return (size + divisor - 1) // divisor


def _are_static(*sizes: Any) -> bool:
    return all(isinstance(size, int) for size in sizes)


def clip_to_int32(lengths: Any) -> Any:
    """Clip 64-bit lengths of NumPy or Python to int32; return other values unchanged."""
    # JAX without x64 converts 2**40 to 0.
    if isinstance(lengths, list | tuple) and lengths and all(isinstance(n, int | np.integer) for n in lengths):
        lengths = np.array(lengths, "int64")
    is_wide = isinstance(lengths, np.ndarray) and lengths.dtype.kind in "iu" and lengths.itemsize == 8
    return lengths.clip(0, np.iinfo("int32").max).astype("int32") if is_wide else lengths
