"""Handlers for `MatrixDiag`, `MatrixDiagPart`, `MatrixSetDiag` and `MatrixBandPart`.

Diagonal d has the elements in row r and column r + d. A band is a tensor (..., diagonals, N) with the highest d first,
each one aligned to the left or right end of its row; a single diagonal is (..., N). tf2onnx fails for empty axes.
"""

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, Operand, RejectionReason, constant_value
from ..kernel_dtypes import WIDER_SELECTION_DTYPES

# The index of a diagonal beyond every matrix
UNLIMITED_DIAGONALS = np.int64(2**31 - 1)
_NOT_CONSTANT = "its diagonals or sizes are not constant"


class _Band(NamedTuple):
    """The diagonals of a node.

    Attributes:
        lower, upper: The lowest and the highest d.
        is_single: Whether the band is a single diagonal.
        upper_is_left, lower_is_left: Whether diagonals above and below the main one begin at the left of their rows.
    """

    lower: int
    upper: int
    is_single: bool
    upper_is_left: bool
    lower_is_left: bool


class _Dims(NamedTuple):
    """R and C of matrices (..., R, C), and N of their band: int64 (1,)."""

    rows: str
    columns: str
    length: str


def matrix_diag_part(graph: Any, node: Any) -> RejectionReason:
    """Convert `MatrixDiagPart` of (matrices (..., R, C), diagonals, fill value) to `Gather` of flat matrices."""
    band = _read_band(graph, node, 1)
    if band is None:
        return _NOT_CONSTANT
    op = _Diagonals(graph, node, band)
    matrix = op.widen(op.inputs[0], "Where")
    dims = op.read_dims(matrix)
    diagonals = np.arange(band.upper, band.lower - 1, -1)[:, None]
    position = op.Sub(op.arange(dims.length), op.diagonal_offset(op.constant(diagonals), dims))
    lengths = op.diagonal_lengths(op.constant(diagonals), dims)
    is_inside = op.And(op.GreaterOrEqual(position, 0), op.Less(position, lengths))
    row = op.Add(position, np.maximum(-diagonals, 0))
    column = op.Add(position, np.maximum(diagonals, 0))
    index = op.Where(is_inside, op.Add(op.Mul(row, dims.columns), column), 0)
    if band.is_single:
        result = op.gather_flat(matrix, 2, op.Squeeze(index, [0]))
    else:
        fill_value = op.read_fill_value(2, matrix)
        result = op.Where(is_inside, op.gather_flat(matrix, 2, index), fill_value)
    return op.finish_cast(result, "Where")


def matrix_diag(graph: Any, node: Any) -> RejectionReason:
    """Convert `MatrixDiag` of a band to the smallest matrices that contain the band, or to constant sizes."""
    sizes = [constant_value(graph, name) for name in node.input[2:4]]
    band = _read_band(graph, node, 1)
    if band is None or any(size is None for size in sizes):
        return _NOT_CONSTANT
    rows, columns = [int(size.item()) for size in sizes if size is not None] or [-1, -1]
    op = _Diagonals(graph, node, band)
    diagonals = op.widen(op.inputs[0], "Where")
    length = op.Shape(diagonals, start=-1)
    min_rows = op.Sub(length, [min(band.upper, 0)])
    min_columns = op.Add(length, [max(band.lower, 0)])
    if rows < 0 and columns < 0:
        min_rows = min_columns = op.Max(min_rows, min_columns)
    dims = _Dims(
        min_rows if rows < 0 else op.constant([rows]),
        min_columns if columns < 0 else op.constant([columns]),
        length,
    )
    return op.finish_cast(op.place_on_diagonals(diagonals, op.read_fill_value(4, diagonals), dims), "Where")


def matrix_set_diag(graph: Any, node: Any) -> RejectionReason:
    """Convert `MatrixSetDiag` of (matrices (..., R, C), band, diagonals) to `Where`."""
    band = _read_band(graph, node, 2)
    if band is None:
        return _NOT_CONSTANT
    op = _Diagonals(graph, node, band)
    matrix, diagonals = (op.widen(name, "Where") for name in op.inputs[:2])
    return op.finish_cast(op.place_on_diagonals(diagonals, matrix, op.read_dims(matrix)), "Where")


def matrix_band_part(graph: Any, node: Any) -> None:
    """Convert `MatrixBandPart` of (matrices (..., R, C), lower, upper count) to `Trilu`; a negative count keeps all."""
    # tf2onnx multiplies by a mask, which makes NaN of infinities outside of the band
    constants = [constant_value(graph, name) for name in node.input[1:]]
    op = NodeReplacement(graph, node)
    matrices, *counts = op.inputs
    band = op.widen(matrices, "Trilu")
    for count, constant, upper in zip(counts, constants, (1, 0), strict=True):
        if constant is not None and constant < 0:
            continue
        diagonal = op.fold.Cast(count if constant is None else constant, to=TensorProto.INT64)
        if constant is None:
            diagonal = op.Where(op.Less(diagonal, 0), UNLIMITED_DIAGONALS, diagonal)
        band = op.Trilu(band, op.fold.Neg(diagonal) if upper else diagonal, upper=upper)
    op.finish("Cast", band, to=op.dtype)


def _read_band(graph: Any, node: Any, index: int) -> _Band | None:
    """Return the band that an optional input defines, by default the main diagonal; None if it is not constant."""
    limits = constant_value(graph, node.input[index]) if len(node.input) > index else np.zeros(1, np.int64)
    if limits is None:
        return None
    lower = int(limits.ravel()[0])
    upper = int(limits.ravel()[-1])
    upper_side, lower_side = (node.get_attr_str("align") if "align" in node.attr else "LEFT_LEFT").split("_")
    return _Band(lower, upper, limits.size == 1 or lower == upper, upper_side == "LEFT", lower_side == "LEFT")


class _Diagonals(NodeReplacement):
    """Builder for a band of matrices (..., R, C); indices of diagonals broadcast."""

    def __init__(self, graph: Any, node: Any, band: _Band) -> None:
        super().__init__(graph, node)
        self._band = band
        self.wider_dtypes = WIDER_SELECTION_DTYPES

    def read_fill_value(self, index: int, like: str) -> str:
        """Return the scalar of an optional input, by default zero, with the element type of `like`."""
        if len(self.inputs) > index:
            return self.widen(self.inputs[index], "Where")
        return self.CastLike(np.float32(0), like)

    def read_dims(self, matrix: str) -> _Dims:
        """Return the dims of matrices (..., R, C) and of their band."""
        rows = self.Shape(matrix, start=-2, end=-1)
        columns = self.Shape(matrix, start=-1)
        limits = self.Add(rows, [min(self._band.upper, 0)]), self.Sub(columns, [max(self._band.lower, 0)])
        return _Dims(rows, columns, self.Min(*limits))

    def diagonal_lengths(self, diagonal: str, dims: _Dims) -> str:
        """Return the lengths of diagonals d: min(R + min(d, 0), C - max(d, 0))."""
        max_rows = self.Add(dims.rows, self.Min(diagonal, 0))
        return self.Min(max_rows, self.Sub(dims.columns, self.Max(diagonal, 0)))

    def diagonal_offset(self, diagonal: str, dims: _Dims) -> Operand:
        """Return the offset of diagonals from the left end of their rows."""
        if self._band.upper_is_left and self._band.lower_is_left:
            return 0
        is_above = self.And(self.GreaterOrEqual(diagonal, 0), np.bool_(self._band.upper_is_left))
        is_below = self.And(self.LessOrEqual(diagonal, 0), np.bool_(self._band.lower_is_left))
        is_left = self.Or(is_above, is_below)
        return self.Where(is_left, 0, self.Sub(dims.length, self.diagonal_lengths(diagonal, dims)))

    def gather_flat(self, tensor: str, axes: int, index: str) -> str:
        """Return the elements at indices into the last `axes` axes, merged to one: (..., shape of `index`)."""
        if axes > 1:
            merged_size = self.ReduceProd(self.dims(tensor, -axes), [0], keepdims=1)
            tensor = self.Reshape(tensor, self.Concat(self.dims(tensor, 0, -axes), merged_size, axis=0))
        return self.Gather(tensor, index, axis=-1)

    def place_on_diagonals(self, diagonals: str, matrix: str, dims: _Dims) -> str:
        """Return matrices (..., R, C) with their band replaced by diagonals, (..., diagonals, N) or (..., N)."""
        row = self.Unsqueeze(self.arange(dims.rows), [1])
        column = self.arange(dims.columns)
        diagonal = self.Sub(column, row)
        is_inside = self.And(
            self.GreaterOrEqual(diagonal, self._band.lower), self.LessOrEqual(diagonal, self._band.upper)
        )
        start = self.Mul(self.Sub(self._band.upper, diagonal), dims.length)
        position = self.Add(self.Min(row, column), self.diagonal_offset(diagonal, dims))
        index = self.Where(is_inside, self.Add(start, position), 0)
        return self.Where(is_inside, self.gather_flat(diagonals, 1 if self._band.is_single else 2, index), matrix)
