"""Linear algebra on matrices (..., N, N): loops over their columns, with the steps that TensorFlow's kernels take.

Elimination takes the largest of a column for its pivot. Where TensorFlow raises an error, of a matrix that has no
inverse or no root, numbers come that are infinite or NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from .writing import Writer

BOTH_LAST = [-2, -1]


class _Rows(NamedTuple):
    """How many rows, their numbers as (N,) and as (N, 1), and 0 and 1 in the dtype of the matrices."""

    number: str
    across: str
    down: str
    zero: np.floating[Any]
    one: np.floating[Any]


class Taken(Writer):
    """Writes what stands in the place of a node that is removed."""

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(graph)
        self.inputs, self._outputs = list(node.input), list(node.output)
        self._shapes, self._dtypes = node.output_shapes, node.output_dtypes
        graph.remove_node(node.name)

    def rows(self, matrix: str, axis: int = -2) -> _Rows:
        count = self("Gather", self("Shape", matrix), axis)
        across = self("Range", 0, count, 1)
        kind = tensor_dtype_to_np_dtype(self.graph.get_dtype(matrix)).type
        return _Rows(count, across, self("Unsqueeze", across, [1]), kind(0), kind(1))

    def give(self, *tensors: str) -> None:
        for output, tensor, shape, dtype in zip(self._outputs, tensors, self._shapes, self._dtypes, strict=True):
            self.named(output, "Cast", tensor, shape=shape, gives=dtype, to=dtype)


def like(write: Writer, made: str, tensor: str, shape: list[int] | None = None) -> str:
    """Return what was made, with the dtype of a tensor, and its rank: ONNX infers neither through a loop."""
    graph = write.graph
    graph.set_dtype(made, graph.get_dtype(tensor))
    graph.set_shape(made, shape or [-1] * len(graph.get_shape(tensor)))
    return made


def _eliminated(write: Writer, rows: _Rows, matrix: str) -> tuple[str, str]:
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
        left = write("Sub", matrix, write("Mul", factor, top))
        matrix = write("Where", write("And", below, write("Equal", every, k)), factor, left)
        return [matrix, write("GatherElements", order, swap, axis=-1)]

    order = write("Expand", rows.across, write("Shape", matrix, end=-1))
    write.graph.set_shape(order, [-1] * (len(write.graph.get_shape(matrix)) - 1))
    matrix, order = write.repeated(rows.number, [matrix, order], step)
    return matrix, order


def _substituted(write: Writer, rows: _Rows, matrix: str, right: str, lower: bool) -> str:
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


def transposed(write: Writer, matrix: str) -> str:
    rank = len(write.graph.get_shape(matrix))
    return like(write, write("Transpose", matrix, perm=[*range(rank - 2), rank - 1, rank - 2]), matrix)


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


def inverted(graph: Any, node: Any) -> None:
    """`InvertPermutation`: each number goes where the permutation says."""
    write = Taken(graph, node)
    (order,) = write.inputs
    every = write("Range", 0, write("Squeeze", write("Shape", order)), 1)
    write.give(write("ScatterElements", every, write("Cast", order, to=TensorProto.INT64), every))


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


def _factors(write: Taken) -> tuple[str, str, _Rows]:
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


def cholesky(graph: Any, node: Any) -> None:
    """`Cholesky`, of what is on and below the diagonal."""
    write = Taken(graph, node)
    (matrix,) = write.inputs
    rows = write.rows(matrix)

    def step(write: Writer, k: str, matrix: str) -> list[str]:
        here = write("Unsqueeze", k, [0])
        column = write("Gather", matrix, here, axis=-1)
        root = write("Sqrt", write("Gather", column, here, axis=-2))
        line = write("Where", write("Less", rows.down, k), rows.zero, write("Div", column, root))
        product = write("Mul", line, write("Unsqueeze", write("Squeeze", line, [-1]), [-2]))
        return [write("Where", write("Equal", rows.across, k), line, write("Sub", matrix, product))]

    write.give(*write.repeated(rows.number, [matrix], step))


def orthogonal(graph: Any, node: Any) -> None:
    """`Qr` by Householder's reflections, whose signs are those of Eigen: the diagonal is against what stood there."""
    full, write = node.get_attr_value("full_matrices", False), Taken(graph, node)
    (matrix,) = write.inputs
    rows, columns = write.rows(matrix), write.rows(matrix, -1)
    tiny = np.finfo(rows.zero.dtype).tiny
    least = write("Min", rows.number, columns.number)

    def step(write: Writer, k: str, matrix: str, turn: str) -> list[str]:
        here = write("Unsqueeze", k, [0])
        column = write("Gather", matrix, here, axis=-1)
        head = write("Gather", column, here, axis=-2)
        tail = write("Where", write("Greater", rows.down, k), column, rows.zero)
        square = write("ReduceSum", write("Mul", tail, tail), [-2], keepdims=1)
        flat = write("Not", write("Greater", square, tiny))
        length = write("Sqrt", write("Add", write("Mul", head, head), square))
        length = write("Where", write("Less", head, rows.zero), length, write("Neg", length))
        line = write("Div", tail, write("Sub", head, length))
        line = write("Where", write("Equal", rows.down, k), rows.one, write("Where", flat, rows.zero, line))
        share = write("Where", flat, rows.zero, write("Div", write("Sub", length, head), length))
        across = write("Mul", share, write("Unsqueeze", write("Squeeze", line, [-1]), [-2]))
        reflected = write("Sub", matrix, write("Mul", line, write("MatMul", across, matrix)))
        return [reflected, write("Sub", turn, write("Mul", write("MatMul", turn, line), across))]

    identity = write("Where", write("Equal", rows.across, rows.down), rows.one, rows.zero)
    square = write("Concat", write("Shape", matrix, end=-1), write("Unsqueeze", rows.number, [0]), axis=0)
    turn = like(write, write("Expand", identity, square), matrix)
    matrix, turn = write.repeated(least, [matrix, turn], step)
    upper = write("Trilu", matrix, upper=1)
    if not full:
        kept = write("Unsqueeze", least, [0])
        turn, upper = (write("Slice", each, [0], kept, [axis]) for each, axis in ((turn, -1), (upper, -2)))
    write.give(turn, upper)
