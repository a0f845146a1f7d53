"""Elimination with the largest of a column for its pivot, and what rests on it: solutions, inverses, determinants."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .matrices import BOTH_LAST, Rows, Taken, like, transposed
from .writing import Writer


def _eliminated(write: Writer, rows: Rows, matrix: str) -> tuple[str, str]:
    """Return what elimination makes of (..., N, M), factors below the diagonal; and the order of its rows."""
    every = write("Range", 0, write("Gather", write("Shape", matrix), -1), 1)

    def step(write: Writer, k: str, matrix: str, order: str) -> list[str]:
        size = write("Abs", write("Gather", matrix, k, axis=-1))
        largest = write("ArgMax", write("Where", write("Less", rows.across, k), -rows.one, size), axis=-1, keepdims=1)
        back = write("Where", write("Equal", rows.across, largest), k, rows.across)
        swap = write("Where", write("Equal", rows.across, k), largest, back)
        whole = write("Expand", write("Unsqueeze", swap, [-1]), write("Shape", matrix))
        matrix = write("GatherElements", matrix, whole, axis=-2)
        here = write("Unsqueeze", k, [0])
        top, column = (write("Gather", matrix, here, axis=axis) for axis in BOTH_LAST)
        below = write("Greater", rows.down, k)
        used = write("And", below, write("Not", write("Equal", column, rows.zero)))
        factor = write("Where", used, write("Div", column, write("Gather", column, here, axis=-2)), rows.zero)
        top = write("Where", write("Less", every, k), rows.zero, top)  # factors stand there
        left = write("Sub", matrix, write("Mul", factor, top))
        matrix = write("Where", write("And", below, write("Equal", every, k)), factor, left)
        return [matrix, write("GatherElements", order, swap, axis=-1)]

    order = write("Expand", rows.across, write("Shape", matrix, end=-1))
    write.graph.set_shape(order, [-1] * (len(write.graph.get_shape(matrix)) - 1))
    matrix, order = write.repeated(rows.number, [matrix, order], step)
    return matrix, order


def _substituted(write: Writer, rows: Rows, matrix: str, right: str, lower: bool) -> str:
    """Return the solution of a triangular system; of the matrix its other triangle is not read."""

    def step(write: Writer, k: str, right: str) -> list[str]:
        if not lower:
            k = write("Sub", write("Sub", rows.number, 1), k)
        here = write("Unsqueeze", k, [0])
        column = write("Gather", matrix, here, axis=-1)
        found = write("Div", write("Gather", right, here, axis=-2), write("Gather", column, here, axis=-2))
        rest = write("Sub", right, write("Mul", column, found))
        left = write("Greater" if lower else "Less", rows.down, k)
        return [write("Where", write("Equal", rows.down, k), found, write("Where", left, rest, right))]

    return write.repeated(rows.number, [right], step)[0]


def _solved(write: Taken, matrix: str, right: str, adjoint: bool) -> str:
    if adjoint:
        matrix = transposed(write, matrix)
    rows = write.rows(matrix)
    both = like(write, write("Concat", matrix, right, axis=-1), matrix)
    both, _ = _eliminated(write, rows, both)
    count = write("Unsqueeze", rows.number, [0])
    right = like(write, write("Slice", both, count, [np.iinfo(np.int64).max], [-1]), matrix)
    return _substituted(write, rows, both, right, lower=False)


def solve(graph: Any, node: Any) -> None:
    """`MatrixSolve`."""
    adjoint, write = node.get_attr_value("adjoint", False), Taken(graph, node)
    matrix, right = write.inputs
    write.give(_solved(write, matrix, right, adjoint))


def inverse(graph: Any, node: Any) -> None:
    """`MatrixInverse`."""
    adjoint, write = node.get_attr_value("adjoint", False), Taken(graph, node)
    (matrix,) = write.inputs
    rows = write.rows(matrix)
    identity = write("Where", write("Equal", rows.across, rows.down), rows.one, rows.zero)
    right = like(write, write("Expand", identity, write("Shape", matrix)), matrix)
    write.give(_solved(write, matrix, right, adjoint))


def triangular_solve(graph: Any, node: Any) -> None:
    """`MatrixTriangularSolve`, whose two inputs need not have the same axes in front."""
    lower, adjoint = (node.get_attr_value(name, default) for name, default in (("lower", True), ("adjoint", False)))
    write = Taken(graph, node)
    matrix, right = write.inputs
    rank = max(len(graph.get_shape(each)) for each in write.inputs)
    if adjoint:
        matrix = transposed(write, matrix)
    in_front = write("Concat", write("Shape", matrix, end=-2), [1, 1], axis=0)
    wide = like(write, write("Expand", right, in_front), right, [-1] * rank)
    write.give(_substituted(write, write.rows(matrix), matrix, wide, bool(lower) != bool(adjoint)))


def lower_upper(graph: Any, node: Any) -> None:
    """`Lu`."""
    write = Taken(graph, node)
    (matrix,) = write.inputs
    write.give(*_eliminated(write, write.rows(matrix), matrix))


def log_determinant(graph: Any, node: Any) -> None:
    """`LogMatrixDeterminant`: its sign, and the logarithm of its size."""
    write = Taken(graph, node)
    diagonal, swapped, _ = _factors(write)
    sign = write("Mul", swapped, write("ReduceProd", write("Sign", diagonal), [-1], keepdims=0))
    write.give(sign, write("ReduceSum", write("Log", write("Abs", diagonal)), [-1], keepdims=0))


def determinant(graph: Any, node: Any) -> None:
    """`MatrixDeterminant`; onnxruntime has `Det` for float32."""
    if graph.get_dtype(node.input[0]) == TensorProto.FLOAT:
        node.type = "Det"
        return
    write = Taken(graph, node)
    diagonal, swapped, _ = _factors(write)
    write.give(write("Mul", swapped, write("ReduceProd", diagonal, [-1], keepdims=0)))


def _factors(write: Taken) -> tuple[str, str, Rows]:
    """Return the diagonal after elimination, and the sign of the order of the rows: 1 or -1."""
    (matrix,) = write.inputs
    rows = write.rows(matrix)
    matrix, order = _eliminated(write, rows, matrix)
    diagonal = write("Where", write("Equal", rows.across, rows.down), matrix, rows.zero)
    later = write("Greater", write("Unsqueeze", order, [-1]), write("Unsqueeze", order, [-2]))
    turned = write("And", later, write("Less", rows.down, rows.across))
    odd = write("Mod", write("ReduceSum", write("Cast", turned, to=TensorProto.INT64), BOTH_LAST, keepdims=0), 2)
    swapped = write("Where", write("Equal", odd, 0), rows.one, -rows.one)
    return write("ReduceSum", diagonal, [-1], keepdims=0), swapped, rows
