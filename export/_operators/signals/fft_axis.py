"""Fourier transform of one axis, by `DFT` or by a matrix product.

The ONNX operator `DFT` is written only for lengths that are known and a power of two. For others onnxruntime 1.31
adds up rounded angles: 7e-5 relative at a length of 300, where a product with a matrix of cosines is right to 1e-6.

Of real numbers the first and the middle one are real, exactly so in TensorFlow: what rounded angles add there, 1e-6 of
the others, would be all that there is. These places are therefore made without angles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from ..graph_builder import Writer

FLOAT = TensorProto.FLOAT
ZERO = np.float32(0)
_THIRD = "ij,...jkl->...ikl"  # a matrix by the third axis from the end


class Length(NamedTuple):
    """The length of a transform: a tensor of shape (1,), and the number, or -1 where it is not known."""

    tensor: str
    known: int


def complex_axis(write: Writer, pair: str, axis: int, size: int, length: Length | None, *, inverse: bool) -> str:
    """Transform an axis of a size, -1 if it is not known, counted from the end without the axis of the parts.

    Where a length is given, the axis is cut or filled with zeros to it.
    """
    if _is_power_of_two(size) and (length is None or length.known == size):
        return _by_operator(write, pair, axis, size, inverse)
    return _by_matrix(write, pair, axis, length, inverse)


def _by_operator(write: Writer, pair: str, axis: int, size: int, inverse: bool) -> str:
    """By `DFT`; the middle apart, by signs in turn, since that is real of real numbers."""
    found = write("DFT", pair, axis=axis - 1, inverse=int(inverse))
    if size == 1:
        return found
    column = (size, *[1] * -axis)
    signs = np.resize([1, -1], column).astype(np.float32) / np.float32(size if inverse else 1)
    middle = write("ReduceSum", write("Mul", pair, signs), [axis - 1], keepdims=1)
    return write("Where", np.resize(np.arange(size) == size // 2, column), middle, found)


def _by_matrix(write: Writer, pair: str, axis: int, length: Length | None, inverse: bool) -> str:
    """By products with matrices: (a + ib)(C - iS), back with +iS and over the length."""
    if length is not None:
        pair = write("Slice", pair, [0], length.tensor, [axis - 1])
    real, imaginary = (write("Gather", pair, each, axis=-1) for each in (0, 1))
    size = _size(write, real, axis)
    columns = size if length is None else length.tensor
    last = axis == -1
    cosines, sines = _angles(write, size if last else columns, columns if last else size, columns)

    def product(part: str, matrix: str) -> str:
        if last:
            return write("MatMul", part, matrix)
        return write("MatMul", matrix, part) if axis == -2 else write("Einsum", matrix, part, equation=_THIRD)

    plus, minus = ("Sub", "Add") if inverse else ("Add", "Sub")
    parts = [
        write(plus, product(real, cosines), product(imaginary, sines)),
        write(minus, product(imaginary, cosines), product(real, sines)),
    ]
    if inverse:
        count = write("Cast", columns, to=FLOAT)
        parts = [write("Div", each, count) for each in parts]
    return joined(write, *parts)


def real_axis(write: Writer, signal: str, length: Length) -> str:
    """Transform the last axis of real numbers: the first half of what comes, and the middle."""
    if _is_power_of_two(length.known):
        pair = write("DFT", write("Unsqueeze", signal, [-1]), length.known, axis=-2, onesided=1)
        edges = np.zeros((length.known // 2 + 1, 2), bool)
        edges[[0, -1], 1] = True
        return write("Where", edges, ZERO, pair)
    cut = write("Slice", signal, [0], length.tensor, [-1])
    cosines, sines = _angles(write, _size(write, cut, -1), _kept(write, length), length.tensor)
    # 0 less what is 0, not its negative: the angle of a number that is real and negative hangs on the sign
    return joined(write, write("MatMul", cut, cosines), write("Sub", ZERO, write("MatMul", cut, sines)))


def real_axis_back(write: Writer, pair: str, size: int, length: Length) -> str:
    """Return the real numbers of which these are the first half, and the middle, of the transform."""
    if _is_power_of_two(length.known) and size == length.known // 2 + 1:
        mirrored = write("Mul", write("Slice", pair, [-2], [0], [-2], [-1]), np.array([1, -1], np.float32))
        whole = write("DFT", write("Concat", pair, mirrored, axis=-2), axis=-2, inverse=1)
        return write("Gather", whole, 0, axis=-1)
    cut = write("Slice", pair, [0], _kept(write, length), [-2])
    rows = _size(write, cut, -2)
    cosines, sines = _angles(write, rows, length.tensor, length.tensor)
    number = write("Range", 0, write("Squeeze", rows), 1)
    twice = write("Add", number, number)
    alone = write("Or", write("Equal", twice, 0), write("Equal", twice, length.tensor))
    weights = write("Div", write("Where", alone, np.float32(1), np.float32(2)), write("Cast", length.tensor, to=FLOAT))
    real, imaginary = (write("Mul", write("Gather", cut, each, axis=-1), weights) for each in (0, 1))
    return write("Sub", write("MatMul", real, cosines), write("MatMul", imaginary, sines))


def joined(write: Writer, *parts: str) -> str:
    """Return both parts along a new last axis."""
    return write("Concat", *(write("Unsqueeze", each, [-1]) for each in parts), axis=-1)


def _kept(write: Writer, length: Length) -> str:
    return write("Add", write("Div", length.tensor, [2]), [1])


def _angles(write: Writer, rows: str, columns: str, length: str) -> tuple[str, str]:
    """Return cosines and sines of 2 pi j k / length, j below `rows`, k below `columns`, each size of shape (1,).

    The product is taken modulo the length while it is an integer, since float32 holds no large angle well; the
    sine of half a turn is 0, which it is not of pi in float32.
    """
    down, across = (write("Range", 0, write("Squeeze", size), 1) for size in (rows, columns))
    turns = write("Mod", write("Mul", write("Unsqueeze", down, [1]), across), length)
    share = write("Div", write("Cast", turns, to=FLOAT), write("Cast", length, to=FLOAT))
    angle = write("Mul", share, np.float32(2 * math.pi))
    is_half = write("Equal", write("Mod", write("Add", turns, turns), length), 0)
    return write("Cos", angle), write("Where", is_half, ZERO, write("Sin", angle))


def _size(write: Writer, tensor: str, axis: int) -> str:
    """Return the size of an axis, of shape (1,)."""
    return write("Gather", write("Shape", tensor), [axis], axis=0)


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
