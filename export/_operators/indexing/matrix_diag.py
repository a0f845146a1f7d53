"""Handlers for `MatrixDiag`, `MatrixDiagPart` and `MatrixSetDiag`.

Diagonal d holds the numbers in row r and column r + d. A band is a tensor (..., diagonals, N), the upper one first,
each at the left or the right end of its row; one diagonal alone has no such axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import Replacement, Value
from .data_movement import sizes

AS_THEY_ARE = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64}


def taken(graph: Any, node: Any) -> None:
    """`MatrixDiagPart` of a matrix (..., R, C) and its later versions, with what fills the rows of a band."""
    write = _Diagonals.of(graph, node, 1)
    if write is None:
        return
    matrix, filling = write.wide(write.inputs[0]), write.inputs[2:3]
    write.measured(matrix)
    diagonals = np.arange(write.upper, write.lower - 1, -1)[:, None]
    along = write("Sub", write.counted(write.length), write.shift(write.constant(diagonals)))
    lengths = write.own_length(write.constant(diagonals))
    within = write("And", write("GreaterOrEqual", along, 0), write("Less", along, lengths))
    row, column = write("Add", along, np.maximum(-diagonals, 0)), write("Add", along, np.maximum(diagonals, 0))
    place = write("Where", within, write("Add", write("Mul", row, write.columns), column), 0)
    if write.is_one:
        write.end(write.picked(matrix, 2, write("Squeeze", place, [0])))
    else:
        zero = write.wide(filling[0]) if filling else write("CastLike", np.float32(0), matrix)
        write.end(write("Where", within, write.picked(matrix, 2, place), zero))


def made(graph: Any, node: Any) -> None:
    """`MatrixDiag` and its later versions: a matrix, as small as it may be unless its sizes are given."""
    if not all(each.is_const() for each in node.inputs[2:4]):
        return
    sizes = [int(each.get_tensor_value(as_list=False).item()) for each in node.inputs[2:4]] or [-1, -1]
    write = _Diagonals.of(graph, node, 1)
    if write is None:
        return
    numbers, filling = write.wide(write.inputs[0]), write.inputs[4:5]
    write.length = write("Shape", numbers, start=-1)
    smallest = [write("Sub", write.length, [min(write.upper, 0)]), write("Add", write.length, [max(write.lower, 0)])]
    if sizes == [-1, -1]:
        smallest = [write("Max", *smallest)] * 2
    given = [least if size < 0 else write.constant([size]) for size, least in zip(sizes, smallest, strict=True)]
    write.rows, write.columns = given
    zero = write.wide(filling[0]) if filling else write("CastLike", np.float32(0), numbers)
    write.end(write.put(numbers, zero))


def replaced(graph: Any, node: Any) -> None:
    """`MatrixSetDiag` of a matrix and diagonals, and its later versions."""
    write = _Diagonals.of(graph, node, 2)
    if write is not None:
        matrix, numbers = (write.wide(each) for each in write.inputs[:2])
        write.measured(matrix)
        write.end(write.put(numbers, matrix))


class _Diagonals(Replacement):
    """Writes a band of diagonals, between matrices (..., R, C) and numbers (..., diagonals, N).

    Attributes:
        lower, upper: The first and the last diagonal.
        rows, columns, length: R, C and N, tensors of shape (1,).
    """

    rows: str
    columns: str
    length: str

    @classmethod
    def of(cls, graph: Any, node: Any, band: int) -> _Diagonals | None:
        """Return what takes the place of a node whose input of this number is the band, if that is known."""
        given = node.inputs[band : band + 1]
        if given and not given[0].is_const():
            return None
        limits = np.ravel(given[0].get_tensor_value(as_list=False)) if given else np.zeros(1, np.int64)
        align = node.get_attr_str("align") if "align" in node.attr else "LEFT_LEFT"
        write = cls(graph, node)
        write.lower, write.upper = int(limits[0]), int(limits[-1])
        write.is_one = len(limits) == 1 or write.lower == write.upper
        write._left = [each == "LEFT" for each in align.split("_")]
        return write

    lower: int
    upper: int
    is_one: bool
    _left: list[bool]

    def wide(self, tensor: str) -> str:
        """Return numbers of which onnxruntime has what is needed: booleans and small integers as int32."""
        return tensor if self.dtype in AS_THEY_ARE else self("Cast", tensor, to=TensorProto.INT32)

    def end(self, found: str) -> None:
        """Write what the node makes."""
        if self.dtype in AS_THEY_ARE:
            self.last("Identity", found)
        else:
            self.last("Cast", found, to=self.dtype)

    def measured(self, matrix: str) -> None:
        """Take the sizes from a matrix."""
        self.rows, self.columns = self("Shape", matrix, start=-2, end=-1), self("Shape", matrix, start=-1)
        most = self("Add", self.rows, [min(self.upper, 0)]), self("Sub", self.columns, [max(self.lower, 0)])
        self.length = self("Min", *most)

    def counted(self, size: str) -> str:
        """Return the numbers below a size."""
        return self("Range", 0, self("Squeeze", size), 1)

    def own_length(self, diagonal: str) -> str:
        """Return how many numbers diagonals have."""
        below = self("Add", self.rows, self("Min", diagonal, 0))
        return self("Min", below, self("Sub", self.columns, self("Max", diagonal, 0)))

    def shift(self, diagonal: str) -> Value:
        """Return how far from the left end of their rows diagonals begin."""
        above, below = self._left
        if above and below:
            return 0
        is_left = self("Or", *self._are_left(diagonal))
        return self("Where", is_left, 0, self("Sub", self.length, self.own_length(diagonal)))

    def _are_left(self, diagonal: str) -> tuple[str, str]:
        above, below = self._left
        return (
            self("And", self("GreaterOrEqual", diagonal, 0), np.bool_(above)),
            self("And", self("LessOrEqual", diagonal, 0), np.bool_(below)),
        )

    def picked(self, tensor: str, axes: int, place: str) -> str:
        """Return the numbers at places of the last axes, counted through them."""
        if axes > 1:
            last = self("ReduceProd", sizes(self, tensor, -axes), [0], keepdims=1)
            before = self("Slice", self("Shape", tensor), [0], [-axes], [0])
            tensor = self("Reshape", tensor, self("Concat", before, last, axis=0))
        return self("Gather", tensor, place, axis=-1)

    def put(self, numbers: str, matrix: str) -> str:
        """Return a matrix with these numbers on its diagonals."""
        row = self("Unsqueeze", self.counted(self.rows), [1])
        column = self.counted(self.columns)
        diagonal = self("Sub", column, row)
        within = self(
            "And",
            self("GreaterOrEqual", diagonal, self.lower),
            self("LessOrEqual", diagonal, self.upper),
        )
        start = self("Mul", self("Sub", self.upper, diagonal), self.length)
        along = self("Add", self("Min", row, column), self.shift(diagonal))
        place = self("Where", within, self("Add", start, along), 0)
        return self("Where", within, self.picked(numbers, 1 if self.is_one else 2, place), matrix)
