"""Where numbers fall among sorted ones: `Bucketize`, `LowerBound` and `UpperBound`, which tf2onnx 1.17 does not know.

Each is a count of comparisons, exact as those are. What is left of a number is what it is not less than, so that NaN,
which is less than nothing, is past the last, as in TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from .elementwise import Handler, constant


def _bucketize(graph: Any, node: Any, name: str, args: Any) -> None:
    """`Bucketize`, of `keras.layers.Discretization`: how many boundaries each number is not less than.

    The boundaries are float32. TensorFlow compares integers with them as float32, and float64 as float64.
    """
    boundaries, numbers = np.array(node.get_attr_value("boundaries") or [], np.float32), node.input[0]
    double = graph.get_dtype(numbers) == TensorProto.DOUBLE
    outputs = _replaced(graph, node)
    if not double:
        numbers = _made(graph, "Cast", [numbers], TensorProto.FLOAT, to=TensorProto.FLOAT)
    column = _made(graph, "Unsqueeze", [numbers, constant(graph, np.array([-1]))])
    below = _made(graph, "Less", [column, constant(graph, boundaries.astype("f8" if double else "f4"))])
    _count(graph, _made(graph, "Not", [below]), TensorProto.INT32, outputs)


def _bound(graph: Any, node: Any, name: str, args: Any) -> None:
    """`LowerBound` and `UpperBound`, of `keras.ops.searchsorted`: (B, N) sorted numbers, (B, M) to be placed."""
    upper, (line, numbers), dtype = node.type == "UpperBound", node.input, graph.get_dtype(node.output[0])
    outputs = _replaced(graph, node)
    row = _made(graph, "Unsqueeze", [line, constant(graph, np.array([1]))])
    column = _made(graph, "Unsqueeze", [numbers, constant(graph, np.array([2]))])
    left = _made(graph, "Not", [_made(graph, "Less", [column, row])]) if upper else _made(graph, "Less", [row, column])
    _count(graph, left, dtype, outputs)


def _replaced(graph: Any, node: Any) -> dict[str, Any]:
    """Remove a node and return what the one that takes its place has to say."""
    options = {"outputs": node.output, "shapes": node.output_shapes, "dtypes": node.output_dtypes, "name": node.name}
    graph.remove_node(node.name)
    return options


def _count(graph: Any, chosen: str, dtype: int, outputs: dict[str, Any]) -> None:
    """Write how many are chosen along the last axis."""
    ones = _made(graph, "Cast", [chosen], dtype, to=dtype)
    graph.make_node("ReduceSum", [ones, constant(graph, np.array([-1]))], attr={"keepdims": 0}, **outputs)


def _made(graph: Any, op: str, inputs: list[str], dtype: int | None = None, **attributes: Any) -> str:
    found = TensorProto.BOOL if op in ("Less", "Not") else dtype or graph.get_dtype(inputs[0])
    return str(graph.make_node(op, inputs, attr=attributes, dtypes=[found]).output[0])


HANDLERS: dict[str, Handler] = {"Bucketize": (_bucketize, []), "LowerBound": (_bound, []), "UpperBound": (_bound, [])}
