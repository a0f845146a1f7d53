"""Shape, dtype and size helpers for static and dynamic sizes.

A size is an integer if it is known, else a scalar tensor of the traced graph.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from ._types import Shape, Tensor


def as_tensor(value: Any) -> Tensor:
    """Returns `value` itself when it is a tensor, else a tensor made of it."""
    return value if ops.is_tensor(value) or isinstance(value, keras.KerasTensor) else ops.convert_to_tensor(value)


def fast_reshape(tensor: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """The tensor in a shape. On torch by itself: Keras looks for tensors in the shape, ten times as long."""
    return tensor.reshape(shape) if keras.backend.backend() == "torch" else ops.reshape(tensor, shape)


def shape_of(tensor: Tensor) -> Shape:
    """The static shape of a tensor, with None for each unknown size."""
    return tuple(tensor.shape)


def dtype_of(tensor: Tensor) -> str:
    """The dtype of a tensor as Keras spells it."""
    return str(keras.backend.standardize_dtype(tensor.dtype))


def sizes_agree(first: int | None, second: int | None) -> bool:
    """Whether two sizes can be the same."""
    return first is None or second is None or first == second


def shapes_agree(first: Shape, second: Shape) -> bool:
    """Whether two shapes can be the same."""
    return len(first) == len(second) and all(map(sizes_agree, first, second))


def merge_shapes(*shapes: Shape) -> Shape:
    """The known sizes of shapes that agree with each other."""
    return tuple(next((size for size in sizes if size is not None), None) for sizes in zip(*shapes, strict=True))


def exact_dtype(dtype: str) -> str:
    """Return float64 for float64, else float32: sums of many terms lose digits in half precision."""
    return "float64" if dtype == "float64" else "float32"


def at_least_float32(tensor: Tensor) -> Tensor:
    """Cast a tensor to float32, unless it is float64."""
    return ops.cast(tensor, exact_dtype(dtype_of(tensor)))


def is_known_true(condition: Any) -> bool:
    """Whether a condition on sizes is known to be true."""
    return condition is True


def max_size(size: Any, other: Any) -> Any:
    """The larger of two sizes."""
    return max(size, other) if _are_static(size, other) else ops.maximum(size, other)


def min_size(size: Any, other: Any) -> Any:
    """The smaller of two sizes."""
    return min(size, other) if _are_static(size, other) else ops.minimum(size, other)


def ceil_div(size: Any, divisor: Any) -> Any:
    """A quotient, rounded up. Not as `-(-size // divisor)`: ONNX rounds that of a negative integer towards zero."""
    return (size + divisor - 1) // divisor


def _are_static(*sizes: Any) -> bool:
    return all(isinstance(size, int) for size in sizes)


def clip_to_int32(lengths: Any) -> Any:
    """Return lengths clipped to int32 if they are NumPy's or Python's of 64 bits: JAX without x64 wraps 2**40 to 0."""
    if isinstance(lengths, list | tuple) and lengths and all(isinstance(n, int | np.integer) for n in lengths):
        lengths = np.array(lengths, "int64")
    is_wide = isinstance(lengths, np.ndarray) and lengths.dtype.kind in "iu" and lengths.itemsize == 8
    return lengths.clip(0, np.iinfo("int32").max).astype("int32") if is_wide else lengths
