"""Handler for `MatrixBandPart` by `Trilu` instead of multiplication with a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, constant_value

ALL = np.int64(2**31 - 1)  # a diagonal beyond every matrix


def matrix_band_part(graph: Any, node: Any) -> None:
    """Convert `MatrixBandPart` of (matrices, diagonals below, diagonals above); a negative number keeps all."""
    constants = [constant_value(graph, name) for name in node.input[1:]]
    op = NodeReplacement(graph, node)
    matrices, *counts = op.inputs
    band = op.widen(matrices, "Trilu")
    for count, constant, upper in zip(counts, constants, (1, 0), strict=True):
        if constant is not None and constant < 0:
            continue
        diagonal = op.fold.Cast(count if constant is None else constant, to=TensorProto.INT64)
        if constant is None:
            diagonal = op.Where(op.Less(diagonal, 0), ALL, diagonal)
        band = op.Trilu(band, op.fold.Neg(diagonal) if upper else diagonal, upper=upper)
    op.finish("Cast", band, to=op.dtype)
