"""Fourier transform of one axis, by `DFT` or by a matrix product.

The ONNX operator `DFT` is used only for constant lengths that are powers of two. For others, onnxruntime 1.31 adds up
rounded angles, with an error of 7e-5 at a length of 300, compared with 1e-6 of a product with a matrix of cosines.

In the transform of real numbers, the first and the middle element are real, in TensorFlow exactly so. Rounded angles
lead to an imaginary part of 1e-6 there, so these elements are computed without angles.
"""

import math
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from ..graph_builder import GraphBuilder

FLOAT = TensorProto.FLOAT
ZERO = np.float32(0)


class Length(NamedTuple):
    """The length of a transform: an int64 tensor of shape (1,), and its constant value, -1 if unknown."""

    tensor: str
    constant: int


def transform_complex_axis(
    op: GraphBuilder, pair: str, axis: int, size: int, length: Length | None, *, inverse: bool
) -> str:
    """Transform an axis of a complex tensor (..., 2), truncated or zero-padded to a length, by default its size."""
    # `axis` is counted from the end of (...), without the axis of the parts; `size` is -1 if unknown
    if _is_power_of_two(size) and (length is None or length.constant == size):
        return _transform_by_dft(op, pair, axis, size, inverse)
    return _transform_by_matrix(op, pair, axis, length, inverse)


def _transform_by_dft(op: GraphBuilder, pair: str, axis: int, size: int, inverse: bool) -> str:
    """Transform (..., 2) by `DFT`; the middle element is the sum with alternating signs, real for real numbers."""
    result = op.DFT(pair, axis=axis - 1, inverse=int(inverse))
    if size == 1:
        return result
    column = (size, *[1] * -axis)
    signs = np.resize([1, -1], column).astype(np.float32) / np.float32(size if inverse else 1)
    middle = op.ReduceSum(op.Mul(pair, signs), [axis - 1], keepdims=1)
    return op.Where(np.resize(np.arange(size) == size // 2, column), middle, result)


def _transform_by_matrix(op: GraphBuilder, pair: str, axis: int, length: Length | None, inverse: bool) -> str:
    """Transform (..., 2) by matrix products: (a + ib)(C - iS), the inverse (a + ib)(C + iS) / length."""
    if length is not None:
        pair = op.Slice(pair, [0], length.tensor, [axis - 1])
    real, imaginary = (op.Gather(pair, part, axis=-1) for part in (0, 1))
    size = _axis_size(op, real, axis)
    columns = size if length is None else length.tensor
    shape = (size, columns) if axis == -1 else (columns, size)
    cosines, sines = _cosines_and_sines(op, *shape, columns)
    plus, minus = ("Sub", "Add") if inverse else ("Add", "Sub")
    parts = [
        op(plus, _multiply_axis(op, real, cosines, axis), _multiply_axis(op, imaginary, sines, axis)),
        op(minus, _multiply_axis(op, imaginary, cosines, axis), _multiply_axis(op, real, sines, axis)),
    ]
    if inverse:
        count = op.Cast(columns, to=FLOAT)
        parts = [op.Div(part, count) for part in parts]
    return stack_parts(op, *parts)


def _multiply_axis(op: GraphBuilder, part: str, matrix: str, axis: int) -> str:
    """Multiply a real tensor by a matrix along one of its last three axes."""
    if axis == -1:
        return op.MatMul(part, matrix)
    return op.MatMul(matrix, part) if axis == -2 else op.Einsum(matrix, part, equation="ij,...jkl->...ikl")


def transform_real_axis(op: GraphBuilder, signal: str, length: Length) -> str:
    """Return the first length // 2 + 1 elements, (..., 2), of the transform of the last axis of real numbers (...)."""
    if _is_power_of_two(length.constant):
        pair = op.DFT(op.Unsqueeze(signal, [-1]), length.constant, axis=-2, onesided=1)
        edges = np.zeros((length.constant // 2 + 1, 2), bool)
        edges[[0, -1], 1] = True
        return op.Where(edges, ZERO, pair)
    padded = op.Slice(signal, [0], length.tensor, [-1])
    cosines, sines = _cosines_and_sines(op, _axis_size(op, padded, -1), _onesided_size(op, length), length.tensor)
    # 0 - 0 is 0, and -0 would change the angle of a negative real number
    return stack_parts(op, op.MatMul(padded, cosines), op.Sub(ZERO, op.MatMul(padded, sines)))


def invert_real_axis(op: GraphBuilder, pair: str, size: int, length: Length) -> str:
    """Return the real numbers (...) whose transform begins with these elements, (..., 2), up to the middle."""
    if _is_power_of_two(length.constant) and size == length.constant // 2 + 1:
        mirrored_half = op.Mul(op.Slice(pair, [-2], [0], [-2], [-1]), np.array([1, -1], np.float32))
        signal = op.DFT(op.Concat(pair, mirrored_half, axis=-2), axis=-2, inverse=1)
        return op.Gather(signal, 0, axis=-1)
    half = op.Slice(pair, [0], _onesided_size(op, length), [-2])
    rows = _axis_size(op, half, -2)
    cosines, sines = _cosines_and_sines(op, rows, length.tensor, length.tensor)
    index = op.arange(rows)
    double_index = op.Add(index, index)
    # All elements but the first and the middle one have a mirrored element, and count twice
    is_single = op.Or(op.Equal(double_index, 0), op.Equal(double_index, length.tensor))
    weights = op.Div(op.Where(is_single, np.float32(1), np.float32(2)), op.Cast(length.tensor, to=FLOAT))
    real, imaginary = (op.Mul(op.Gather(half, part, axis=-1), weights) for part in (0, 1))
    return op.Sub(op.MatMul(real, cosines), op.MatMul(imaginary, sines))


def stack_parts(op: GraphBuilder, *parts: str) -> str:
    """Stack real and imaginary part, (...), to (..., 2)."""
    return op.Concat(*(op.Unsqueeze(part, [-1]) for part in parts), axis=-1)


def _onesided_size(op: GraphBuilder, length: Length) -> str:
    return op.Add(op.Div(length.tensor, [2]), [1])


def _cosines_and_sines(op: GraphBuilder, rows: str, columns: str, length: str) -> tuple[str, str]:
    """Return cosines and sines of 2 pi j k / length, (rows, columns); sizes have the shape (1,)."""
    # The integer j k is taken modulo the length, because large angles lose digits in float32. The sine of half a turn
    # is set to 0: the sine of pi, rounded to float32, is not 0
    j, k = op.arange(rows), op.arange(columns)
    turns = op.Mod(op.Mul(op.Unsqueeze(j, [1]), k), length)
    fraction = op.Div(op.Cast(turns, to=FLOAT), op.Cast(length, to=FLOAT))
    angle = op.Mul(fraction, np.float32(2 * math.pi))
    is_half = op.Equal(op.Mod(op.Add(turns, turns), length), 0)
    return op.Cos(angle), op.Where(is_half, ZERO, op.Sin(angle))


def _axis_size(op: GraphBuilder, tensor: str, axis: int) -> str:
    """Return the size of an axis, int64, (1,)."""
    return op.Gather(op.Shape(tensor), [axis], axis=0)


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
