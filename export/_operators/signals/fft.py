"""Handlers for Fourier transforms and for the parts of complex tensors.

ONNX has no complex tensors. Between `Complex` or a transform and `Real`, `Imag`, `ComplexAbs` or another transform, a
complex tensor (...) is a float32 tensor (..., 2). Other operators are rewritten on the parts (`split_complex.py`).
"""

import re
from typing import Any

from onnx import TensorProto

from ..graph_builder import NodeReplacement, RejectionReason, constant_value
from .fft_axis import Length, invert_real_axis, stack_parts, transform_complex_axis, transform_real_axis

FLOAT = TensorProto.FLOAT
_COMPLEX64_ONLY = "only complex64 is supported, not complex128"


def complex_(graph: Any, node: Any) -> RejectionReason:
    """Convert `Complex` of two float32 tensors (...) to `Concat`: (..., 2)."""
    if graph.get_dtype(node.input[0]) != FLOAT:
        return _COMPLEX64_ONLY
    op = _replace_complex(graph, node)
    return op.finish("Identity", stack_parts(op, *op.inputs))


def real_and_imag(graph: Any, node: Any) -> RejectionReason:
    """Convert `Real` and `Imag` of (..., 2) to `Gather`: (...)."""
    if graph.get_dtype(node.input[0]) != FLOAT:
        return _COMPLEX64_ONLY
    op = NodeReplacement(graph, node)
    return op.finish("Gather", *op.inputs, int(node.type == "Imag"), axis=-1)


def complex_abs(graph: Any, node: Any) -> RejectionReason:
    """Convert `ComplexAbs` of (..., 2) to `ReduceL2`: (...), in float64, because squares may overflow float32."""
    if graph.get_dtype(node.input[0]) != FLOAT:
        return _COMPLEX64_ONLY
    op = NodeReplacement(graph, node)
    magnitude = op.ReduceL2(op.Cast(*op.inputs, to=TensorProto.DOUBLE), [-1], keepdims=0)
    return op.finish("Cast", magnitude, to=FLOAT)


def fft(graph: Any, node: Any) -> RejectionReason:
    """Convert `FFT`, `FFT2D`, `FFT3D`, inverse and real transforms, such as `IRFFT2D`, one axis after the other."""
    if graph.get_dtype(node.input[0]) != FLOAT:
        return _COMPLEX64_ONLY
    inverse, real, count = re.fullmatch(r"(I?)(R?)FFT(\d?)D?", node.type).groups()  # type: ignore[union-attr]
    num_axes = int(count or 1)
    is_forward_real = bool(real) and not inverse
    is_inverse_real = bool(real) and bool(inverse)
    shape = graph.get_shape(node.input[0]) or [-1] * (num_axes + 1)
    sizes = shape if is_forward_real else shape[:-1]
    op = NodeReplacement(graph, node) if is_inverse_real else _replace_complex(graph, node)
    result = op.inputs[0]
    lengths = _read_lengths(op, num_axes) if real else {}
    if is_forward_real:
        result = transform_real_axis(op, result, lengths[-1])
    outer_axes = range(-num_axes, -1)
    for axis in outer_axes if real else (-1, *reversed(outer_axes)):
        result = transform_complex_axis(op, result, axis, sizes[axis], lengths.get(axis), inverse=bool(inverse))
    if is_inverse_real:
        result = invert_real_axis(op, result, sizes[-1], lengths[-1])
    return op.finish("Identity", result)


def _read_lengths(op: NodeReplacement, num_axes: int) -> dict[int, Length]:
    """Return the length of each transformed axis, by its negative index, from the input (num_axes,)."""
    constant = constant_value(op.graph, op.inputs[1])
    lengths = [-1] * num_axes if constant is None else constant.tolist()
    tensor = op.Cast(op.inputs[1], to=TensorProto.INT64)
    return {
        axis: Length(tensor if num_axes == 1 else op.Gather(tensor, [axis], axis=0), lengths[axis])
        for axis in range(-num_axes, 0)
    }


def _replace_complex(graph: Any, node: Any) -> NodeReplacement:
    """Return the replacement of a node with a complex output, (...), by a float32 output (..., 2)."""
    op = NodeReplacement(graph, node)
    op.dtypes = [FLOAT]
    op.shapes = [None if op.shape is None else [*op.shape, 2]]
    return op
