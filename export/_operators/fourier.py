"""Fourier transforms: what `keras.ops.fft`, `fft2`, `ifft2`, `rfft` and `stft` trace to, which tf2onnx 1.17 cannot map.

ONNX has no complex tensors: here one is a float32 tensor with an axis more, last, of the real and the imaginary part.
It lives between `Complex` or a transform of real numbers and `Real`, `Imag` or `ComplexAbs`; where another op reads
one, its maker is left as it is, and refused as an op without mapping.

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

from .elementwise import Handler, constant

READ_BY = {"FFT", "FFT2D", "IFFT", "IFFT2D", "Real", "Imag", "ComplexAbs"}


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


def _complex(graph: Any, node: Any, name: str, args: Any) -> None:
    """`Complex` of two float32 tensors: both, joined along a new last axis."""
    if graph.get_dtype(node.input[0]) != TensorProto.FLOAT or not _is_read_here(graph, node):
        return
    parts, outputs, shape = list(node.input), node.output, graph.get_shape(node.output[0])
    graph.remove_node(name)
    _join(graph, parts, outputs, shape, name)


def _real(graph: Any, node: Any, name: str, args: Any) -> None:
    _part(graph, node, name, 0)


def _imaginary(graph: Any, node: Any, name: str, args: Any) -> None:
    _part(graph, node, name, 1)


def _part(graph: Any, node: Any, name: str, index: int) -> None:
    if not _is_pair(graph, node):
        return
    inputs, outputs, shapes = [node.input[0], constant(graph, np.int64(index))], node.output, node.output_shapes
    graph.remove_node(name)
    graph.make_node("Gather", inputs, attr={"axis": -1}, outputs=outputs, shapes=shapes, dtypes=_FLOATS, name=name)


def _magnitude(graph: Any, node: Any, name: str, args: Any) -> None:
    if not _is_pair(graph, node):
        return
    inputs, outputs, shapes = [node.input[0], constant(graph, np.array([-1]))], node.output, node.output_shapes
    graph.remove_node(name)
    options = {"attr": {"keepdims": 0}, "shapes": shapes, "dtypes": _FLOATS, "name": name}
    graph.make_node("ReduceL2", inputs, outputs=outputs, **options)


def _transform(graph: Any, node: Any, name: str, args: Any) -> None:
    """`FFT`, `FFT2D` and their inverses: one axis after the other."""
    if not _is_pair(graph, node) or not _is_read_here(graph, node):
        return
    kind, pair, outputs, shape = TRANSFORMS[node.type], node.input[0], node.output, graph.get_shape(node.output[0])
    graph.remove_node(name)
    sizes = shape or [-1] * kind.axes
    for axis in range(-1, -1 - kind.axes, -1):
        if _is_power_of_two(sizes[axis]):
            pair = _by_operator(graph, pair, axis, sizes[axis], kind.inverse)
        else:
            pair = _by_matrix(graph, pair, axis, kind.inverse)
    dtypes, shapes = _FLOATS, [_with_parts(shape)]
    graph.make_node("Identity", [pair], outputs=outputs, shapes=shapes, dtypes=dtypes, name=name)


def _by_operator(graph: Any, pair: str, axis: int, size: int, inverse: bool) -> str:
    """One axis of a complex tensor by `DFT`; the middle apart, by signs in turn, since that is real of real numbers."""
    found = _made(graph, "DFT", [pair], axis=axis - 1, inverse=int(inverse))
    if size == 1:
        return found
    column = (size, *[1] * -axis)
    signs = np.resize([1, -1], column).astype(np.float32) / np.float32(size if inverse else 1)
    terms, along = _made(graph, "Mul", [pair, constant(graph, signs)]), constant(graph, np.array([axis - 1]))
    middle = _made(graph, "ReduceSum", [terms, along], keepdims=1)
    place = np.resize(np.arange(size) == size // 2, column)
    return _made(graph, "Where", [constant(graph, place), middle, found])


def _by_matrix(graph: Any, pair: str, axis: int, inverse: bool) -> str:
    """One axis of a complex tensor by products with matrices: (a + ib)(C - iS), back with +iS and over the length."""
    real, imaginary = (_made(graph, "Gather", [pair, constant(graph, np.int64(part))], axis=-1) for part in (0, 1))
    length = _size(graph, real, axis)
    cosines, sines = _angles(graph, length, length, length)

    def product(part: str, matrix: str) -> str:  # the matrices are symmetric
        return _made(graph, "MatMul", [part, matrix] if axis == -1 else [matrix, part])

    plus, minus = ("Sub", "Add") if inverse else ("Add", "Sub")
    parts = [
        _made(graph, plus, [product(real, cosines), product(imaginary, sines)]),
        _made(graph, minus, [product(imaginary, cosines), product(real, sines)]),
    ]
    if inverse:
        count = _made(graph, "Cast", [length], to=TensorProto.FLOAT)
        parts = [_made(graph, "Div", [part, count]) for part in parts]
    return _join(graph, parts)


def _real_transform(graph: Any, node: Any, name: str, args: Any) -> None:
    """`RFFT`: of real numbers, cut or filled with zeros to a length; the first half of what comes, and the middle."""
    signal, wanted = node.input
    if graph.get_dtype(signal) != TensorProto.FLOAT or not _is_read_here(graph, node):
        return
    known = node.inputs[1].get_tensor_value(as_list=False).item() if node.inputs[1].is_const() else -1
    outputs, shape = node.output, graph.get_shape(node.output[0])
    graph.remove_node(name)
    length = _made(graph, "Cast", [wanted], to=TensorProto.INT64)
    if _is_power_of_two(known):
        one = _made(graph, "Unsqueeze", [signal, constant(graph, np.array([-1]))])
        pair = _made(graph, "DFT", [one, constant(graph, np.int64(known))], axis=-2, onesided=1)
        edges = np.zeros((known // 2 + 1, 2), bool)
        edges[[0, -1], 1] = True
        inputs = [constant(graph, edges), constant(graph, np.float32(0)), pair]
        options = {"shapes": [_with_parts(shape)], "dtypes": _FLOATS, "name": name}
        graph.make_node("Where", inputs, outputs=outputs, **options)
        return
    first = constant(graph, np.array([0]))
    cut = _made(graph, "Slice", [signal, first, length, constant(graph, np.array([-1]))])
    half = _made(graph, "Div", [length, constant(graph, np.array([2]))])
    kept = _made(graph, "Add", [half, constant(graph, np.array([1]))])
    cosines, sines = _angles(graph, _size(graph, cut, -1), kept, length)
    parts = [_made(graph, "MatMul", [cut, cosines]), _made(graph, "Neg", [_made(graph, "MatMul", [cut, sines])])]
    _join(graph, parts, outputs, shape, name)


def _angles(graph: Any, rows: str, columns: str, length: str) -> tuple[str, str]:
    """Return cosines and sines of 2 pi j k / length, j below `rows`, k below `columns`, each size of shape (1,).

    The product is taken modulo the length while it is an integer, since float32 holds no large angle well; the
    sine of half a turn is 0, which it is not of pi in float32.
    """
    zero, one = constant(graph, np.int64(0)), constant(graph, np.int64(1))
    steps = [
        _made(graph, "Range", [zero, _made(graph, "Squeeze", [size]), one], dtype=TensorProto.INT64)
        for size in (rows, columns)
    ]
    down = _made(graph, "Unsqueeze", [steps[0], constant(graph, np.array([1]))], dtype=TensorProto.INT64)
    turns = _made(graph, "Mod", [_made(graph, "Mul", [down, steps[1]], dtype=TensorProto.INT64), length])
    share = [_made(graph, "Cast", [each], to=TensorProto.FLOAT) for each in (turns, length)]
    whole = constant(graph, np.float32(2 * math.pi))
    angle = _made(graph, "Mul", [_made(graph, "Div", share), whole])
    sines = _made(graph, "Sin", [angle])
    halves = _made(graph, "Mod", [_made(graph, "Add", [turns, turns], dtype=TensorProto.INT64), length])
    whole_halves = _made(graph, "Equal", [halves, zero], dtype=TensorProto.BOOL)
    exact = _made(graph, "Where", [whole_halves, constant(graph, np.float32(0)), sines])
    return _made(graph, "Cos", [angle]), exact


_FLOATS = [TensorProto.FLOAT]


def _made(graph: Any, op: str, inputs: list[str], dtype: int | None = None, **attributes: Any) -> str:
    integers = op in ("Cast", "Mod", "Shape", "Slice") or dtype is not None
    dtypes = [dtype] if dtype is not None else None if integers else _FLOATS
    return str(graph.make_node(op, inputs, attr=attributes, dtypes=dtypes).output[0])


def _size(graph: Any, tensor: str, axis: int) -> str:
    """Return the size of an axis, of shape (1,)."""
    shape = _made(graph, "Shape", [tensor], dtype=TensorProto.INT64)
    return _made(graph, "Gather", [shape, constant(graph, np.array([axis]))], dtype=TensorProto.INT64, axis=0)


def _join(graph: Any, parts: list[str], outputs: Any = None, shape: Any = None, name: str | None = None) -> str:
    last = constant(graph, np.array([-1]))
    wide = [_made(graph, "Unsqueeze", [part, last]) for part in parts]
    options = {"shapes": [_with_parts(shape)], "outputs": outputs, "name": name} if outputs else {}
    return str(graph.make_node("Concat", wide, attr={"axis": -1}, dtypes=_FLOATS, **options).output[0])


def _with_parts(shape: list[int] | None) -> list[int] | None:
    return None if shape is None else [*shape, 2]


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def _is_pair(graph: Any, node: Any) -> bool:
    """Whether what comes in was made here: a complex tensor of any other maker still has a complex dtype."""
    return bool(graph.get_dtype(node.input[0]) == TensorProto.FLOAT)


def _is_read_here(graph: Any, node: Any) -> bool:
    return all(each.type in READ_BY for each in graph.find_output_consumers(node.output[0]))


HANDLERS: dict[str, Handler] = {
    "Complex": (_complex, []),
    "Real": (_real, []),
    "Imag": (_imaginary, []),
    "ComplexAbs": (_magnitude, []),
    "RFFT": (_real_transform, []),
    **{op: (_transform, []) for op in TRANSFORMS},
}
