"""Linear algebra on matrices (..., N, N): loops over their columns, with the steps that TensorFlow's kernels take.

Where TensorFlow raises an error, of a matrix that has no inverse or no root, numbers come that are infinite or NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from .writing import Writer

BOTH_LAST = [-2, -1]


class Rows(NamedTuple):
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

    def rows(self, matrix: str, axis: int = -2) -> Rows:
        count = self("Gather", self("Shape", matrix), axis)
        across = self("Range", 0, count, 1)
        kind = tensor_dtype_to_np_dtype(self.graph.get_dtype(matrix)).type
        return Rows(count, across, self("Unsqueeze", across, [1]), kind(0), kind(1))

    def give(self, *tensors: str) -> None:
        for output, tensor, shape, dtype in zip(self._outputs, tensors, self._shapes, self._dtypes, strict=True):
            self.named(output, "Cast", tensor, shape=shape, gives=dtype, to=dtype)


def like(write: Writer, made: str, tensor: str, shape: list[int] | None = None) -> str:
    """Return what was made, with the dtype of a tensor, and its rank: ONNX infers neither through a loop."""
    graph = write.graph
    graph.set_dtype(made, graph.get_dtype(tensor))
    graph.set_shape(made, shape or [-1] * len(graph.get_shape(tensor)))
    return made


def transposed(write: Writer, matrix: str) -> str:
    rank = len(write.graph.get_shape(matrix))
    return like(write, write("Transpose", matrix, perm=[*range(rank - 2), rank - 1, rank - 2]), matrix)


def inverted(graph: Any, node: Any) -> None:
    """`InvertPermutation`: each number goes where the permutation says."""
    write = Taken(graph, node)
    (order,) = write.inputs
    every = write("Range", 0, write("Squeeze", write("Shape", order)), 1)
    write.give(write("ScatterElements", every, write("Cast", order, to=TensorProto.INT64), every))


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
