"""Convert lookup tables, as of `StringLookup`, to ONNX `LabelEncoder`."""

from typing import Any

import numpy as np
import tensorflow as tf
from onnx import TensorProto

from .._format.dtypes import UNWRITABLE_CHARACTER, decode_strings
from .._operators.graph_builder import GraphBuilder, RejectionReason, constant_value
from .._operators.table import adapt_handler
from .._private_api.tensorflow_internals import read_table
from .._private_api.tf2onnx_internals import make_name

DTYPES = {TensorProto.INT64: "int64", TensorProto.STRING: "string"}
TABLE = "MutableHashTableV2"


def set_table_shapes(graph: tf.compat.v1.GraphDef) -> None:
    """Replace captured tables by table operators, in place, so that TensorFlow infers the shapes of lookups."""
    # A captured table is a `Placeholder`, through which TensorFlow infers no shape of a lookup. tf2onnx then guesses:
    # it gives the output of `SelectV2` (mask token) the shape of one input, although inputs broadcast.
    nodes = {node.name: node for node in graph.node}
    for node in graph.node:
        if node.op == "LookupTableFindV2" and (table := nodes[node.input[0].partition(":")[0]]).op == "Placeholder":
            table.op = TABLE  # `lookup_table_find` reads the content
            table.attr.clear()
            table.attr["key_dtype"].type, table.attr["value_dtype"].type = node.attr["Tin"].type, node.attr["Tout"].type


def make_lookup_handlers(function: Any) -> dict[str, Any]:
    """Return a handler for tf2onnx that converts lookups in the captured tables of a function, and refuses others."""
    # Keras raises for unknown words by an `Assert` on -1, which the file lacks; see `_fail_for_unknown_words`. Layers
    # with several out-of-vocabulary buckets compare the result with -1 themselves (`Equal`) and hash the word.
    tables = {placeholder.op.name: handle for handle, placeholder in function.graph.captures}
    has_assert = _has_assert(function.graph.as_graph_def())

    def lookup_table_find(graph: Any, node: Any) -> RejectionReason:
        table, lookup_keys, default_node = node.inputs
        default = constant_value(graph, default_node.output[0])
        elem_types = graph.get_dtype(node.input[1]), *node.output_dtypes
        key_dtype, value_dtype = dtypes = tuple(DTYPES.get(elem_type, "") for elem_type in elem_types)
        if not all(dtypes):
            return "only keys and values of int64 and string are supported"
        if table.name not in tables or default is None:
            return "its table is created in the call or read in a loop, or its default is not constant"
        unsorted_keys, unsorted_values = map(decode_strings, read_table(tables[table.name], (key_dtype, value_dtype)))
        order = np.argsort(unsorted_keys)  # TensorFlow's hash table has another order in each process
        keys, values = unsorted_keys[order], unsorted_values[order]
        if unwritable := [
            text for text in (*keys, *values) if isinstance(text, str) and UNWRITABLE_CHARACTER.search(text)
        ]:
            return f"its table contains {unwritable[0]!r}, which an ONNX table cannot store"
        attributes = {
            f"keys_{key_dtype}s": keys.tolist(),
            f"values_{value_dtype}s": values.tolist(),
            f"default_{value_dtype}": str(default.item()) if value_dtype == "string" else int(default),
        }
        outputs = {"outputs": node.output, "shapes": node.output_shapes, "dtypes": node.output_dtypes}
        lookup_output = _find_masked_output(graph, node.output[0])
        is_hashed = any(consumer.type == "Equal" for consumer in graph.find_output_consumers(lookup_output))
        if value_dtype == "int64" and default == -1 and has_assert and not is_hashed:
            attributes["default_int64"] = unknown_value = int(max(values)) + 1
            _fail_for_unknown_words(graph, lookup_output, unknown_value)
        options = {"name": node.name, "attr": attributes, "domain": "ai.onnx.ml"}
        graph.remove_node(node.name)
        graph.make_node("LabelEncoder", lookup_keys.output, **options, **outputs)
        if not graph.find_output_consumers(table.output[0]):
            graph.remove_node(table.name)
        return None

    # The handler of a table keeps it until its lookups are converted; a table that remains afterwards is refused.
    functions = {"LookupTableFindV2": lookup_table_find, TABLE: lambda graph, node: None}
    return {name: (adapt_handler(name, function), []) for name, function in functions.items()}


def _has_assert(graph: tf.compat.v1.GraphDef) -> bool:
    """Return True if a graph has an `Assert`, as for a lookup that raises for unknown words."""
    node_lists = [graph.node, *(function.node_def for function in graph.library.function)]
    return any(node.op == "Assert" for nodes in node_lists for node in nodes)


def _find_masked_output(graph: Any, tensor: str) -> str:
    """Return the output of the selection that replaces the mask token by its index, or `tensor`."""
    consumers = graph.find_output_consumers(tensor)
    return consumers[0].output[0] if len(consumers) == 1 and consumers[0].type in ("SelectV2", "Select") else tensor


def _fail_for_unknown_words(graph: Any, tensor: str, unknown_value: int) -> None:
    """Make onnxruntime fail for unknown words: add a `Gather` whose index is out of bounds for them."""
    op = GraphBuilder(graph)
    shape = graph.get_shape(tensor)
    consumers = graph.find_output_consumers(tensor)
    is_unknown = op.Cast(op.Equal(tensor, np.int64(unknown_value)), to=TensorProto.INT64)
    zero = op.Gather(np.zeros(1, np.int64), is_unknown, axis=0)
    checked = make_name("in_the_vocabulary")
    options = {"outputs": [checked], "shapes": [shape], "dtypes": [TensorProto.INT64]}
    graph.make_node("Add", [tensor, zero], **options)
    for consumer in consumers:
        graph.replace_input(consumer, tensor, checked)
    graph.outputs[:] = [checked if output == tensor else output for output in graph.outputs]
