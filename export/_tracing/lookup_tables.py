"""Convert lookup tables, as of `StringLookup`, to ONNX `LabelEncoder`."""

from typing import Any

import numpy as np
import tensorflow as tf
from onnx import TensorProto

from .._format.dtypes import UNWRITABLE, decoded
from .._operators.graph_builder import GraphBuilder, Refusal, constant_value
from .._operators.table import raising
from .._private_api.tensorflow_internals import content_of
from .._private_api.tf2onnx_internals import make_name

KINDS = {TensorProto.INT64: "int64", TensorProto.STRING: "string"}
TABLE = "MutableHashTableV2"


def tables_with_shapes(graph: tf.compat.v1.GraphDef) -> None:
    """Let TensorFlow know the shape of what is looked up, in place: of a table that a function captures it does not.

    tf2onnx then guesses shapes, and takes what `SelectV2` gives to be of the shape of one of its inputs.
    """
    nodes = {node.name: node for node in graph.node}
    for node in graph.node:
        if node.op == "LookupTableFindV2" and (table := nodes[node.input[0].partition(":")[0]]).op == "Placeholder":
            table.op = TABLE  # which only tells its types: what is in it the function knows
            table.attr.clear()
            table.attr["key_dtype"].type, table.attr["value_dtype"].type = node.attr["Tin"].type, node.attr["Tout"].type


def lookup_handlers(function: Any) -> dict[str, Any]:
    """Return tf2onnx's handler for lookups in the tables of a concrete function; other tables are refused."""
    tables = {inside.op.name: outside for outside, inside in function.graph.captures}
    asserts = _asserts(function.graph.as_graph_def())

    def lookup_table_find(graph: Any, node: Any) -> Refusal:
        table, given, missing = node.inputs
        default = constant_value(graph, missing.output[0])
        known, made_of = (KINDS.get(each, "") for each in (graph.get_dtype(node.input[1]), *node.output_dtypes))
        if not known or not made_of:
            return "only keys and values of int64 and string are supported"
        if table.name not in tables or default is None:
            return "its table is created in the call or read in a loop, or its default is not constant"
        unordered, numbers = (decoded(array) for array in content_of(tables[table.name], (known, made_of)))
        order = np.argsort(unordered)  # TensorFlow's hash table has another order in each process
        keys, values = unordered[order], numbers[order]
        if odd := [each for each in (*keys, *values) if isinstance(each, str) and UNWRITABLE.search(each)]:
            return f"its table holds {odd[0]!r}, which no table in ONNX can hold"
        attributes = {
            f"keys_{known}s": keys.tolist(),
            f"values_{made_of}s": values.tolist(),
            f"default_{made_of}": str(default.item()) if made_of == "string" else int(default),
        }
        options = {
            "outputs": node.output,
            "shapes": node.output_shapes,
            "dtypes": node.output_dtypes,
            "name": node.name,
        }
        last = _last(graph, node.output[0])
        is_hashed = any(reader.type == "Equal" for reader in graph.find_output_consumers(last))
        if made_of == "int64" and default == -1 and asserts and not is_hashed:  # as Keras refuses unknown words
            attributes["default_int64"] = beyond = int(max(values)) + 1
            _refuse(graph, last, beyond)
        graph.remove_node(node.name)
        graph.make_node("LabelEncoder", given.output, attr=attributes, domain="ai.onnx.ml", **options)
        if not graph.find_output_consumers(table.output[0]):
            graph.remove_node(table.name)
        return None

    # a table remains until its lookups are written; one that is left then is refused
    functions = {"LookupTableFindV2": lookup_table_find, TABLE: lambda graph, node: None}
    return {name: (raising(name, function), []) for name, function in functions.items()}


def _asserts(graph: tf.compat.v1.GraphDef) -> bool:
    """Tell whether a graph fails under a condition, as that of a lookup does that refuses words."""
    nodes = [graph.node, *(each.node_def for each in graph.library.function)]
    return any(node.op == "Assert" for each in nodes for node in each)


def _last(graph: Any, tensor: str) -> str:
    """Return what a lookup gives where a mask has a number of its own."""
    readers = graph.find_output_consumers(tensor)
    return readers[0].output[0] if len(readers) == 1 and readers[0].type in ("SelectV2", "Select") else tensor


def _refuse(graph: Any, tensor: str, beyond: int) -> None:
    """Let onnxruntime fail where a number is that of no word, by an index that is out of bounds then."""
    op = GraphBuilder(graph)
    shape = graph.get_shape(tensor)
    readers = graph.find_output_consumers(tensor)
    is_beyond = op.Cast(op.Equal(tensor, np.int64(beyond)), to=TensorProto.INT64)
    zero = op.Gather(np.zeros(1, np.int64), is_beyond, axis=0)
    found = make_name("in_the_vocabulary")
    options = {"outputs": [found], "shapes": [shape], "dtypes": [TensorProto.INT64]}
    graph.make_node("Add", [tensor, zero], **options)
    for reader in readers:
        graph.replace_input(reader, tensor, found)
    graph.outputs[:] = [found if each == tensor else each for each in graph.outputs]
