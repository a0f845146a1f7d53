"""Dtypes of inputs and outputs, and arrays of strings."""

import re
from typing import Any

import numpy as np

from .names import STRING

_NUMBERS = ("bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")
DTYPES = (*_NUMBERS, STRING)
# NumPy drops trailing zero characters, and UTF-8 cannot encode unpaired surrogates.
UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype in memory of a manifest's dtype."""
    return np.dtype(object if name == STRING else name)


def decoded(array: np.ndarray | bytes) -> np.ndarray:
    """Return an array of `str` for an array of UTF-8 bytes, as TensorFlow returns strings; other arrays unchanged."""
    if isinstance(array, bytes):  # a scalar
        return np.array(array.decode(), object)
    if array.dtype != object:
        return array
    return np.array([value.decode() for value in array.flat], object).reshape(array.shape)
