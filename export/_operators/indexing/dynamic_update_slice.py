"""Handler for `XlaDynamicUpdateSlice` (`keras.ops.slice_update`).

The update is padded to the size of what it goes into, and taken where it is: its start may be known only when the
model runs, as in a loop that fills a buffer.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from ..graph_builder import Replacement


def update(graph: Any, node: Any) -> None:
    """`XlaDynamicUpdateSlice` of (operand, update, start); a start is moved to where the update fits, as XLA has it."""
    if node.output_dtypes == [TensorProto.BOOL]:
        return  # onnxruntime has no `Where` for booleans
    write = Replacement(graph, node)
    operand, update, start = write.inputs
    room = write("Sub", write("Shape", operand), write("Shape", update))
    first = write("Max", write("Min", write("Cast", start, to=TensorProto.INT64), room), [0])
    pads = write("Concat", first, write("Sub", room, first), axis=0)
    ones = write("Expand", 1, write("Shape", update))
    where = write("Cast", write("Pad", ones, pads), to=TensorProto.BOOL)
    write.last("Where", where, write("Pad", update, pads), operand)
