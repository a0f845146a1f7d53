"""Dtypes of inputs and outputs, and arrays of strings."""

import re
from typing import Any

import numpy as np

from .names import STRING

_INTEGERS = [f"{prefix}{bits}" for prefix in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64", STRING)
# NumPy drops trailing zero characters, and UTF-8 cannot encode unpaired surrogates.
UNWRITABLE_CHARACTER = re.compile(r"[\x00\ud800-\udfff]")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of arrays in memory for a dtype name of a manifest."""
    return np.dtype(object if name == STRING else name)


def decode_strings(array: np.ndarray | bytes) -> np.ndarray:
    """Decode strings, which TensorFlow returns as UTF-8 bytes, to `str`; return arrays of other dtypes unchanged."""
    if isinstance(array, bytes):  # a scalar
        return np.array(array.decode(), object)
    if array.dtype != object:
        return array
    return np.array([value.decode() for value in array.flat], object).reshape(array.shape)
