"""Handler for `MatrixBandPart` by `Trilu` instead of multiplication with a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import Replacement

AS_THEY_ARE = {TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT64}  # onnxruntime's `Trilu`
ALL = np.int64(2**31 - 1)  # a diagonal beyond every matrix


def band_part(graph: Any, node: Any) -> None:
    """`MatrixBandPart` of (matrices, diagonals below, diagonals above), of which a negative number is all."""
    known = [each.get_tensor_value(as_list=False) if each.is_const() else None for each in node.inputs[1:]]
    write = Replacement(graph, node)
    kept, *counts = write.inputs
    wide = write.dtype
    if wide not in AS_THEY_ARE:
        wide = TensorProto.FLOAT if wide == TensorProto.FLOAT16 else TensorProto.INT64
        kept = write("Cast", kept, to=wide)
    for count, number, upper in zip(counts, known, (1, 0), strict=True):
        if number is not None and number < 0:
            continue
        diagonal = write.computed("Cast", count if number is None else number, to=TensorProto.INT64)
        if number is None:
            diagonal = write("Where", write("Less", diagonal, 0), ALL, diagonal)
        kept = write("Trilu", kept, write.computed("Neg", diagonal) if upper else diagonal, upper=upper)
    write.last("Cast", kept, to=write.dtype)
