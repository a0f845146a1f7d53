"""Freeze a traced function: turn variables into constants, inline functions, keep attention calls as calls."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import tensorflow as tf
from onnx import TensorProto

from .._errors import ExportError
from .._onnx.graph_edits import replace_items
from .._onnx.traced_model import FUNCTION_DOMAIN, Weights
from .._onnx.traversal import iter_nodes
from .._operators.graph_builder import GraphBuilder, RejectionReason
from .._operators.table import adapt_handler
from .._private_api import tensorflow_internals
from .._private_api.tf2onnx_internals import make_name, optimize_tf_graph, replace_resource_gathers
from .attention_calls import TracedCall
from .conditionals import resolve_constant_ifs, rewrite_case_as_if
from .reachable_calls import find_reachable_calls
from .weight_inputs import is_large, replace_by_inputs


@dataclass(frozen=True)
class FrozenGraph:
    """A traced function as one graph."""

    graph: tf.compat.v1.GraphDef
    weights: Weights  # inputs of the graph
    unfolded_weights: Weights  # not combined with other constants
    reachable_ops: set[str]  # ONNX functions of attention calls


def freeze_function(function: Any, inputs: list[str], outputs: list[str], *, keep_calls: bool) -> FrozenGraph:
    """Return the frozen graph of a concrete function between tensors; `keep_calls` keeps attention calls."""
    # The steps are those of tf2onnx's `from_function`, but large weights become inputs, and attention calls are not
    # inlined. Freezing makes arguments of calls constant, for which grappler would specialize a function.
    graph, variables = tensorflow_internals.freeze_variables(function, is_large, inline=not keep_calls)
    for library_function in graph.library.function:
        if _find_attention_op(library_function) is not None:
            library_function.attr[tensorflow_internals.NO_SPECIALIZE].b = True
    attention_ops = _find_attention_ops(graph)
    weights, unfolded = replace_by_inputs(graph, variables, function.structured_outputs, attention_ops)
    rewrite_case_as_if(graph)
    reachable_ops = find_reachable_calls(graph, outputs, _find_attention_ops(graph)) if keep_calls else set()
    tensors = [*inputs, *(f"{name}:0" for name in weights)], outputs
    graph = _inline_functions(optimize_tf_graph(replace_resource_gathers(graph), *tensors), *tensors)
    graph = resolve_constant_ifs(graph, lambda graph: optimize_tf_graph(_inline_functions(graph, *tensors), *tensors))
    return FrozenGraph(_sort_graph(graph), weights, unfolded, reachable_ops)


def _sort_graph(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Sort nodes and functions by name, since TensorFlow's optimizers return them in a random order."""
    replace_items(graph.node, sorted(graph.node, key=lambda node: node.name))
    replace_items(graph.library.function, sorted(graph.library.function, key=lambda function: function.signature.name))
    for function in graph.library.function:
        replace_items(function.node_def, sorted(function.node_def, key=lambda node: node.name))
    return graph


def _find_attention_ops(graph: tf.compat.v1.GraphDef) -> dict[str, str]:
    ops = ((function.signature.name, _find_attention_op(function)) for function in graph.library.function)
    return {name: op for name, op in ops if op is not None}


def _find_attention_op(function: Any) -> str | None:
    """Return the name of the ONNX function of an attention call, or None for another library function."""
    if tensorflow_internals.IMPLEMENTS not in function.attr:
        return None
    domain, _, op = function.attr[tensorflow_internals.IMPLEMENTS].s.decode().rpartition(".")
    return op if domain == FUNCTION_DOMAIN else None


def _inline_functions(graph: tf.compat.v1.GraphDef, inputs: list[str], outputs: list[str]) -> tf.compat.v1.GraphDef:
    """Inline the calls that freezing leaves: TensorFlow never inlines functions marked `jit_compile=True`."""
    functions = [function for function in graph.library.function if _find_attention_op(function) is None]
    if not functions:
        return graph
    for definition in (*graph.node, *functions, *(node for function in functions for node in function.node_def)):
        for attribute in (tensorflow_internals.COMPILED, tensorflow_internals.NO_INLINE):
            definition.attr.pop(attribute, None)
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.optimizers.append("function")
    # By default grappler skips graphs of fewer than four nodes.
    config.graph_options.rewrite_options.min_graph_nodes = -1
    with tf.Graph().as_default():  # `export_meta_graph` raises in eager mode
        meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph)
    # grappler removes nodes that no fetched node depends on; `train_op` declares the fetched nodes
    meta_graph.collection_def["train_op"].node_list.value.extend(inputs + outputs)
    return tensorflow_internals.run_optimizers(config, meta_graph)


def make_call_handlers(graph: tf.compat.v1.GraphDef, calls: Sequence[TracedCall]) -> dict[str, Any]:
    """Return handlers for tf2onnx that convert each remaining function call to one node with all inputs and outputs."""
    functions = {function.signature.name: function for function in graph.library.function}
    attention_ops = _find_attention_ops(graph)
    by_op = {call.op_type: call for call in calls}

    def partitioned_call(context: Any, node: Any) -> RejectionReason:
        name = node.get_attr_str("f")
        if name not in attention_ops:
            return f"TensorFlow does not inline its function `{name}`"
        _write_call(context, node, by_op[attention_ops[name]], functions[name])
        return None

    return {
        name: (adapt_handler(name, partitioned_call), []) for name in ("PartitionedCall", "StatefulPartitionedCall")
    }


def _write_call(context: Any, node: Any, call: TracedCall, function: Any) -> None:
    """Replace a node of tf2onnx by a call with all outputs."""
    # TensorFlow's optimizers remove unread outputs of a function; the name of a remaining output has its index.
    inputs = _list_call_inputs(call, node, GraphBuilder(context))
    indices = (_parse_output_index(argument.name) for argument in function.signature.output_arg)
    tensors = zip(node.output, node.output_shapes, node.output_dtypes, strict=True)
    remaining = dict(zip(indices, tensors, strict=True))
    outputs = [
        remaining[index] if index in remaining else (make_name(node.name), None, TensorProto.FLOAT)
        for index in range(len(call.outputs))
    ]
    context.remove_node(node.name)
    names, shapes, dtypes = map(list, zip(*outputs, strict=True))
    context.make_node(
        call.op_type, inputs, outputs=names, shapes=shapes, dtypes=dtypes, domain=FUNCTION_DOMAIN, name=node.name
    )


def _list_call_inputs(call: TracedCall, node: Any, op: GraphBuilder) -> list[str]:
    """Return the inputs of a call: the constants of its composite, and the arguments of its node."""
    arguments = [*node.input]
    inputs = [op.constant(call.constants[name]) if name in call.constants else arguments.pop(0) for name in call.shapes]
    return [*inputs, *arguments]


def _parse_output_index(name: str) -> int:
    """Return the index of an output with the name `identity` (0) or `identity_N` (N)."""
    suffix = name.rpartition("_")[2]
    return int(suffix) if suffix.isdigit() else 0


def check_calls_intact(graph: onnx.GraphProto, calls: Sequence[TracedCall], reachable_ops: Collection[str]) -> None:
    """Raise ExportError unless each reachable call is one node of the graph, with all its inputs and outputs."""
    nodes = {node.op_type: node for node in iter_nodes(graph) if node.domain == FUNCTION_DOMAIN}
    for call in calls:
        node = nodes.get(call.op_type)
        if node is None and call.op_type not in reachable_ops:
            continue
        if node is None or (len(node.input), len(node.output)) != (len(call.shapes), len(call.outputs)):
            raise ExportError(
                f"TensorFlow's optimizers changed the attention call of layer `{call.layer}`, so the exporter cannot "
                "insert its ONNX form. Export with `lowering='portable'`."
            )
