"""Handlers for Fourier transforms; complex tensors have a last axis (real, imaginary).

ONNX has no complex tensors: here one is a float32 tensor with an axis more, last, of the real and the imaginary part.
It lies between `Complex` or a transform and `Real`, `Imag`, `ComplexAbs` or another transform; whatever else reads
complex numbers reads their parts (`split_complex.py`).
"""

from __future__ import annotations

import re
from typing import Any

from onnx import TensorProto

from ..graph_builder import Replacement
from .fft_axis import Length, complex_axis, real_axis, real_axis_back
from .fft_axis import joined as both_joined

FLOAT = TensorProto.FLOAT


def joined(graph: Any, node: Any) -> None:
    """`Complex` of two float32 tensors: both, joined along a new last axis."""
    if graph.get_dtype(node.input[0]) == FLOAT:
        write = _pair(graph, node)
        write.last("Identity", both_joined(write, *write.inputs))


def part(graph: Any, node: Any) -> None:
    """`Real` and `Imag`."""
    if _is_float(graph, node):
        write = Replacement(graph, node)
        write.last("Gather", *write.inputs, int(node.type == "Imag"), axis=-1)


def magnitude(graph: Any, node: Any) -> None:
    """`ComplexAbs`; float32 may not hold the squares."""
    if _is_float(graph, node):
        write = Replacement(graph, node)
        length = write("ReduceL2", write("Cast", *write.inputs, to=TensorProto.DOUBLE), [-1], keepdims=0)
        write.last("Cast", length, to=FLOAT)


def transform(graph: Any, node: Any) -> None:
    """`FFT`, `FFT2D`, `FFT3D`, their inverses, and both of real numbers, where the length of each axis is given."""
    if not _is_float(graph, node):
        return
    inverse, real, axes = re.fullmatch(r"(I?)(R?)FFT(\d?)D?", node.type).groups()  # type: ignore[union-attr]
    others = range(-int(axes or 1), -1)
    wanted = node.inputs[1] if real else None
    sizes = graph.get_shape(node.input[0]) or [-1] * (len(others) + 2)
    sizes = sizes if real and not inverse else sizes[:-1]
    write = Replacement(graph, node) if real and inverse else _pair(graph, node)
    found = write.inputs[0]
    lengths = _lengths(write, wanted, len(others) + 1) if real else {}
    if real and not inverse:
        found = real_axis(write, found, lengths[-1])
    for axis in [*others] if real else [-1, *reversed(others)]:
        found = complex_axis(write, found, axis, sizes[axis], lengths.get(axis), inverse=bool(inverse))
    if real and inverse:
        found = real_axis_back(write, found, sizes[-1], lengths[-1])
    write.last("Identity", found)


def _lengths(write: Replacement, wanted: Any, axes: int) -> dict[int, Length]:
    """Return the length of each of the last axes, by its number from the end."""
    known = wanted.get_tensor_value() if wanted.is_const() else [-1] * axes
    tensor = write("Cast", write.inputs[1], to=TensorProto.INT64)
    return {
        axis: Length(tensor if axes == 1 else write("Gather", tensor, [axis], axis=0), known[axis])
        for axis in range(-axes, 0)
    }


def _pair(graph: Any, node: Any) -> Replacement:
    """Remove a node that makes a complex tensor; what is written in its place has the axis of the parts."""
    write = Replacement(graph, node)
    write.dtype, write.shape = FLOAT, None if write.shape is None else [*write.shape, 2]
    return write


def _is_float(graph: Any, node: Any) -> bool:
    """Whether what comes in is of float32, real or both parts of complex64; of float64 nothing is written."""
    return bool(graph.get_dtype(node.input[0]) == FLOAT)
