"""`keras.ops.slice_update` in ONNX: TensorFlow's operator for it is XLA's, which tf2onnx 1.17 does not know.

The update is padded to the size of what it goes into, and taken where it is: its start may be known only when the
model runs, as in a loop that fills a buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .elementwise import Handler, constant


def _update(graph: Any, node: Any, name: str, args: Any) -> None:
    """`XlaDynamicUpdateSlice` of (operand, update, start); a start is moved to where the update fits, as XLA has it."""
    operand, update, start = node.input
    outputs, shapes, dtypes = node.output, node.output_shapes, node.output_dtypes
    if dtypes == [TensorProto.BOOL]:
        return  # onnxruntime has no `Where` for booleans: it is refused as an op without mapping
    graph.remove_node(name)

    def sizes(op: str, *inputs: str, **attributes: int) -> str:
        return str(graph.make_node(op, list(inputs), attr=attributes, dtypes=[TensorProto.INT64]).output[0])

    room = sizes("Sub", sizes("Shape", operand), sizes("Shape", update))
    first = sizes("Cast", start, to=TensorProto.INT64)
    first = sizes("Max", sizes("Min", first, room), constant(graph, np.array([0])))
    pads = sizes("Concat", first, sizes("Sub", room, first), axis=0)
    padded = graph.make_node("Pad", [update, pads], shapes=shapes, dtypes=dtypes).output[0]
    one = constant(graph, np.array(1, np.int64))
    ones = sizes("Expand", one, sizes("Shape", update))
    where = graph.make_node("Cast", [sizes("Pad", ones, pads)], attr={"to": TensorProto.BOOL}).output[0]
    graph.make_node("Where", [where, padded, operand], outputs=outputs, shapes=shapes, dtypes=dtypes, name=name)


HANDLERS: dict[str, Handler] = {"XlaDynamicUpdateSlice": (_update, [])}
