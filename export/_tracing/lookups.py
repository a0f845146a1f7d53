"""Tables of whole numbers that a function captures, those of `keras.layers.IntegerLookup`, in ONNX."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from .._internals.tensorflow_internals import content_of
from .._operators.writing import constant_of


def lookup_handlers(function: Any) -> dict[str, Any]:
    """Return tf2onnx's handler for lookups in the tables of a concrete function; other tables are refused."""
    tables = {inside.op.name: outside for outside, inside in function.graph.captures}

    def encoder(graph: Any, node: Any, name: str, arguments: Any) -> None:
        table, numbers, missing = node.inputs
        default = constant_of(graph, missing.output[0])
        dtypes = {graph.get_dtype(node.input[1]), *node.output_dtypes}
        if table.name not in tables or default is None or dtypes != {TensorProto.INT64}:
            return
        keys, values = content_of(tables[table.name])
        attributes = {"keys_int64s": keys, "values_int64s": values, "default_int64": int(default)}
        made = {"outputs": node.output, "shapes": node.output_shapes, "dtypes": node.output_dtypes, "name": name}
        graph.remove_node(name)
        graph.make_node("LabelEncoder", numbers.output, attr=attributes, domain="ai.onnx.ml", **made)
        if not graph.find_output_consumers(table.output[0]):
            graph.remove_node(table.name)

    return {"LookupTableFindV2": (encoder, [])}
