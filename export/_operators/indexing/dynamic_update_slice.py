"""Handler for `XlaDynamicUpdateSlice` (`keras.ops.slice_update`)."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from ..graph_builder import NodeReplacement


def xla_dynamic_update_slice(graph: Any, node: Any) -> str | None:
    """Convert `XlaDynamicUpdateSlice` of (operand, update, start).

    The update is padded to the size of the operand, and selected by a mask: its start may be known only at run time,
    as in a loop that fills a buffer. A start is moved to where the update fits, as in XLA.
    """
    if node.output_dtypes == [TensorProto.BOOL]:
        return "onnxruntime has no `Where` of booleans"
    op = NodeReplacement(graph, node)
    operand, update, start = op.inputs
    room = op.Sub(op.Shape(operand), op.Shape(update))
    first = op.Max(op.Min(op.Cast(start, to=TensorProto.INT64), room), [0])
    pads = op.Concat(first, op.Sub(room, first), axis=0)
    ones = op.Expand(1, op.Shape(update))
    mask = op.Cast(op.Pad(ones, pads), to=TensorProto.BOOL)
    op.finish("Where", mask, op.Pad(update, pads), operand)
    return None
