"""The `portable` lowering: plain ONNX primitives, with the mappings of tf2onnx that lose numbers replaced.

Each handler has tf2onnx's own form: it gets the graph, the node, its name and its arguments, and edits the graph in
place.
"""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

Handler = tuple[Any, list[Any]]


def _where(graph: Any, node: Any, name: str, args: Any) -> None:
    """`tf.where` as `Where`.

    tf2onnx 1.17 writes `mask * x + (1 - mask) * y`, which turns a row into NaN as soon as one of its masked values is
    NaN or infinite. onnxruntime has no `Where` for booleans; there the choice is logic.
    """
    if graph.get_dtype(node.output[0]) != TensorProto.BOOL:
        node.type = "Where"
        return
    condition, chosen, other = node.input
    shapes, dtypes = node.output_shapes, node.output_dtypes
    graph.remove_node(name)
    first = graph.make_node("And", [condition, chosen], dtypes=[TensorProto.BOOL])
    negated = graph.make_node("Not", [condition], dtypes=[TensorProto.BOOL])
    second = graph.make_node("And", [negated.output[0], other], dtypes=[TensorProto.BOOL])
    both = [first.output[0], second.output[0]]
    graph.make_node("Or", both, outputs=node.output, shapes=shapes, dtypes=dtypes, name=name)


def _erfc(graph: Any, node: Any, name: str, args: Any) -> None:
    """`Erfc`, which the exact GELU is written with and tf2onnx 1.17 does not know, as `1 - Erf`."""
    shapes, dtypes = node.output_shapes, node.output_dtypes
    source, outputs = node.input[0], node.output
    graph.remove_node(name)
    erf = graph.make_node("Erf", [source], shapes=shapes, dtypes=dtypes)
    one = graph.make_node("CastLike", [_one(graph), source], dtypes=dtypes)
    graph.make_node("Sub", [one.output[0], erf.output[0]], outputs=outputs, shapes=shapes, dtypes=dtypes, name=name)


def _one(graph: Any) -> str:
    import numpy as np
    from tf2onnx.utils import make_name

    return str(graph.make_const(make_name("one"), np.float32(1.0).reshape(())).output[0])


HANDLERS: dict[str, Handler] = {"SelectV2": (_where, []), "Erfc": (_erfc, [])}
