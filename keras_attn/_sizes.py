"""Arithmetic on sizes of axes: integers where they are known, and scalar tensors while a graph is traced without them.

The result is an integer wherever what it is made of is one.
"""

from typing import Any

from keras import ops


def holds(condition: Any) -> bool:
    """Whether a condition on sizes is known to be true."""
    return condition is True


def largest(size: Any, other: Any) -> Any:
    """The larger of two sizes."""
    return max(size, other) if _are_known(size, other) else ops.maximum(size, other)


def smallest(size: Any, other: Any) -> Any:
    """The smaller of two sizes."""
    return min(size, other) if _are_known(size, other) else ops.minimum(size, other)


def ceil_div(size: Any, divisor: Any) -> Any:
    """A quotient, rounded up. Not as `-(-size // divisor)`: ONNX rounds that of a negative integer towards zero."""
    return (size + divisor - 1) // divisor


def _are_known(*sizes: Any) -> bool:
    return all(isinstance(size, int) for size in sizes)
