"""Fourier transforms: what `keras.ops.fft`, `fft2`, `ifft2`, `rfft` and `stft` trace to.

ONNX has no complex tensors: here one is a float32 tensor with an axis more, last, of the real and the imaginary part.
It lives between `Complex` or a transform of real numbers and `Real`, `Imag` or `ComplexAbs`; where another op reads
one, its maker is left as it is.

The ONNX operator `DFT` is written only for lengths that are known and a power of two. For others onnxruntime 1.31
adds up rounded angles: 7e-5 relative at a length of 300, where a product with a matrix of cosines is right to 1e-6.

Of real numbers the first and the middle one are real, exactly so in TensorFlow: what rounded angles add there, 1e-6 of
the others, would be all that there is. These places are therefore made without angles.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from .writing import Replacement, Writer

FLOAT = TensorProto.FLOAT
READ_BY = {"FFT", "FFT2D", "IFFT", "IFFT2D", "Real", "Imag", "ComplexAbs"}
ZERO = np.float32(0)


class _Transform(NamedTuple):
    """Over how many of the last axes, and whether back."""

    axes: int
    inverse: bool


TRANSFORMS = {
    "FFT": _Transform(1, False),
    "FFT2D": _Transform(2, False),
    "IFFT": _Transform(1, True),
    "IFFT2D": _Transform(2, True),
}


def joined(graph: Any, node: Any) -> None:
    """`Complex` of two float32 tensors: both, joined along a new last axis."""
    if graph.get_dtype(node.input[0]) == FLOAT and _is_read_here(graph, node):
        write = _pair(graph, node)
        _last_joined(write, *write.inputs)


def part(graph: Any, node: Any) -> None:
    """`Real` and `Imag`."""
    if _is_pair(graph, node):
        write = Replacement(graph, node)
        write.last("Gather", *write.inputs, int(node.type == "Imag"), axis=-1)


def magnitude(graph: Any, node: Any) -> None:
    """`ComplexAbs`."""
    if _is_pair(graph, node):
        write = Replacement(graph, node)
        write.last("ReduceL2", *write.inputs, [-1], keepdims=0)


def transform(graph: Any, node: Any) -> None:
    """`FFT`, `FFT2D` and their inverses: one axis after the other."""
    if not _is_pair(graph, node) or not _is_read_here(graph, node):
        return
    kind, write = TRANSFORMS[node.type], _pair(graph, node)
    (pair,) = write.inputs
    sizes = [-1] * kind.axes if write.shape is None else write.shape[:-1]
    for axis in range(-1, -1 - kind.axes, -1):
        if _is_power_of_two(sizes[axis]):
            pair = _by_operator(write, pair, axis, sizes[axis], kind.inverse)
        else:
            pair = _by_matrix(write, pair, axis, kind.inverse)
    write.last("Identity", pair)


def _by_operator(write: Writer, pair: str, axis: int, size: int, inverse: bool) -> str:
    """One axis of a complex tensor by `DFT`; the middle apart, by signs in turn, since that is real of real numbers."""
    found = write("DFT", pair, axis=axis - 1, inverse=int(inverse))
    if size == 1:
        return found
    column = (size, *[1] * -axis)
    signs = np.resize([1, -1], column).astype(np.float32) / np.float32(size if inverse else 1)
    middle = write("ReduceSum", write("Mul", pair, signs), [axis - 1], keepdims=1)
    return write("Where", np.resize(np.arange(size) == size // 2, column), middle, found)


def _by_matrix(write: Writer, pair: str, axis: int, inverse: bool) -> str:
    """One axis of a complex tensor by products with matrices: (a + ib)(C - iS), back with +iS and over the length."""
    real, imaginary = (write("Gather", pair, each, axis=-1) for each in (0, 1))
    length = _size(write, real, axis)
    cosines, sines = _angles(write, length, length, length)

    def product(part: str, matrix: str) -> str:  # the matrices are symmetric
        return write("MatMul", part, matrix) if axis == -1 else write("MatMul", matrix, part)

    plus, minus = ("Sub", "Add") if inverse else ("Add", "Sub")
    parts = [
        write(plus, product(real, cosines), product(imaginary, sines)),
        write(minus, product(imaginary, cosines), product(real, sines)),
    ]
    if inverse:
        count = write("Cast", length, to=FLOAT)
        parts = [write("Div", each, count) for each in parts]
    return write("Concat", *_wide(write, *parts), axis=-1)


def real_transform(graph: Any, node: Any) -> None:
    """`RFFT`: of real numbers, cut or filled with zeros to a length; the first half of what comes, and the middle."""
    if graph.get_dtype(node.input[0]) != FLOAT or not _is_read_here(graph, node):
        return
    known = node.inputs[1].get_tensor_value(as_list=False).item() if node.inputs[1].is_const() else -1
    write = _pair(graph, node)
    signal, wanted = write.inputs
    if _is_power_of_two(known):
        pair = write("DFT", write("Unsqueeze", signal, [-1]), known, axis=-2, onesided=1)
        edges = np.zeros((known // 2 + 1, 2), bool)
        edges[[0, -1], 1] = True
        write.last("Where", edges, ZERO, pair)
        return
    length = write("Cast", wanted, to=TensorProto.INT64)
    cut = write("Slice", signal, [0], length, [-1])
    kept = write("Add", write("Div", length, [2]), [1])
    cosines, sines = _angles(write, _size(write, cut, -1), kept, length)
    _last_joined(write, write("MatMul", cut, cosines), write("Neg", write("MatMul", cut, sines)))


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


def _wide(write: Writer, *parts: str) -> list[str]:
    return [write("Unsqueeze", each, [-1]) for each in parts]


def _last_joined(write: Replacement, *parts: str) -> None:
    write.last("Concat", *_wide(write, *parts), axis=-1)


def _pair(graph: Any, node: Any) -> Replacement:
    """Remove a node that makes a complex tensor; what is written in its place has the axis of the parts."""
    write = Replacement(graph, node)
    write.dtype, write.shape = FLOAT, None if write.shape is None else [*write.shape, 2]
    return write


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def _is_pair(graph: Any, node: Any) -> bool:
    """Whether what comes in was made here: a complex tensor of any other maker still has a complex dtype."""
    return bool(graph.get_dtype(node.input[0]) == FLOAT)


def _is_read_here(graph: Any, node: Any) -> bool:
    return all(each.type in READ_BY for each in graph.find_output_consumers(node.output[0]))
