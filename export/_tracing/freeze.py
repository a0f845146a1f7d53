"""Freeze a traced function: variables to constants, calls inlined, attention calls kept.

What was traced as a named function of an attention layer stays a call, and becomes one ONNX node.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import tensorflow as tf
from onnx import TensorProto

from .._errors import ExportError
from .._onnx.graph_edits import refill
from .._onnx.traced_model import DOMAIN, Weights
from .._onnx.traversal import all_nodes
from .._operators.graph_builder import GraphBuilder, Refusal
from .._operators.table import raising
from .._private_api import tensorflow_internals, tf2onnx_internals
from .._private_api.tf2onnx_internals import make_name
from .attention_calls import Call
from .conditionals import cases_as_conditions, known_conditions_resolved
from .reachable_calls import needed_calls
from .weight_inputs import is_large, move_out


@dataclass(frozen=True)
class Frozen:
    """A traced function as one graph."""

    graph: tf.compat.v1.GraphDef
    weights: Weights  # those that are inputs of the graph
    unfolded: Weights  # variables into which the converter folds nothing
    needed: set[str]  # the named functions that the outputs depend on


def frozen(function: Any, inputs: list[str], outputs: list[str], *, keep_calls: bool) -> Frozen:
    """Return the frozen graph of a concrete function between tensors; `keep_calls` keeps calls of attention layers."""
    # the steps of tf2onnx, except for weights and calls
    graph, left_out = tensorflow_internals.graph_with_constants(function, is_large, inline=not keep_calls)
    for named in graph.library.function:
        if _op_of(named) is not None:
            named.attr[tensorflow_internals.KEEPS_ITS_ARGUMENTS].b = True  # weights are constants from here on
    weights, unfolded = move_out(graph, left_out, taken=[*function.structured_outputs], calls=_ops_by_function(graph))
    cases_as_conditions(graph)
    needed = needed_calls(graph, outputs, _ops_by_function(graph)) if keep_calls else set()
    ends = [*inputs, *(f"{name}:0" for name in weights)], outputs
    graph = _inlined(tf2onnx_internals.optimized(tf2onnx_internals.mended(graph), *ends), *ends)
    graph = known_conditions_resolved(graph, lambda graph: tf2onnx_internals.optimized(_inlined(graph, *ends), *ends))
    return Frozen(_in_order(graph), weights, unfolded, needed)


def _in_order(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Sort nodes and functions by name: TensorFlow's optimizers return them in a random order."""
    refill(graph.node, sorted(graph.node, key=lambda node: node.name))
    refill(graph.library.function, sorted(graph.library.function, key=lambda function: function.signature.name))
    for function in graph.library.function:
        refill(function.node_def, sorted(function.node_def, key=lambda node: node.name))
    return graph


def _ops_by_function(graph: tf.compat.v1.GraphDef) -> dict[str, str]:
    ops = ((function.signature.name, _op_of(function)) for function in graph.library.function)
    return {name: op for name, op in ops if op is not None}


def _op_of(function: Any) -> str | None:
    """Return the ONNX op that a library function stands for, `None` for any other function."""
    if tensorflow_internals.IMPLEMENTS not in function.attr:
        return None
    domain, _, op = function.attr[tensorflow_internals.IMPLEMENTS].s.decode().rpartition(".")
    return op if domain == DOMAIN else None


def _inlined(graph: tf.compat.v1.GraphDef, inputs: list[str], outputs: list[str]) -> tf.compat.v1.GraphDef:
    """Inline the calls that freezing leaves: TensorFlow never inlines what is marked `jit_compile=True`."""
    functions = [function for function in graph.library.function if _op_of(function) is None]
    if not functions:
        return graph
    for holder in (*graph.node, *functions, *(node for function in functions for node in function.node_def)):
        for mark in (tensorflow_internals.COMPILED, tensorflow_internals.KEPT_APART):
            holder.attr.pop(mark, None)
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.optimizers.append("function")
    config.graph_options.rewrite_options.min_graph_nodes = -1  # or graphs of a few nodes are left as they are
    with tf.Graph().as_default():  # export_meta_graph refuses to run eagerly
        meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph)
    meta_graph.collection_def["train_op"].node_list.value.extend(inputs + outputs)  # what the optimizer must keep
    return tensorflow_internals.optimized(config, meta_graph)


def call_handlers(graph: tf.compat.v1.GraphDef, calls: Sequence[Call]) -> dict[str, Any]:
    """Return tf2onnx's handlers for the remaining calls: one node for each, with all inputs and outputs."""
    functions = {f.signature.name: f for f in graph.library.function if _op_of(f) is not None}
    by_op = {call.op: call for call in calls}

    def partitioned_call(context: Any, node: Any) -> Refusal:
        name = node.get_attr_str("f")
        if name not in functions:
            return f"TensorFlow does not inline its function `{name}`"
        _write_call(context, node, by_op[str(_op_of(functions[name]))], functions[name])
        return None

    return {name: (raising(name, partitioned_call), []) for name in ("PartitionedCall", "StatefulPartitionedCall")}


def _write_call(context: Any, node: Any, call: Call, function: Any) -> None:
    """Replace a node of tf2onnx by a call with all outputs; TensorFlow's optimizers drop outputs that nobody reads."""
    inputs = _call_inputs(call, node, GraphBuilder(context))
    numbers = (_number(argument.name) for argument in function.signature.output_arg)
    remaining = dict(zip(numbers, zip(node.output, node.output_shapes, node.output_dtypes, strict=True), strict=True))
    outputs = [
        remaining[number] if number in remaining else (make_name(node.name), None, TensorProto.FLOAT)
        for number in range(len(call.outputs))
    ]
    context.remove_node(node.name)
    names, shapes, dtypes = map(list, zip(*outputs, strict=True))
    context.make_node(call.op, inputs, outputs=names, shapes=shapes, dtypes=dtypes, domain=DOMAIN, name=node.name)


def _call_inputs(call: Call, node: Any, write: GraphBuilder) -> list[str]:
    """Return the inputs of a call: constants that were folded into the function, and the arguments of its node."""
    arguments = [*node.input]
    inputs = [
        write.constant(call.constants[name]) if name in call.constants else arguments.pop(0) for name in call.shapes
    ]
    return [*inputs, *arguments]


def _number(name: str) -> int:
    """Return which output of a function a name stands for: TensorFlow calls them `identity` and `identity_1`."""
    number = name.rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def check_calls(graph: onnx.GraphProto, calls: Sequence[Call], needed: Collection[str]) -> None:
    """Raise ExportError unless each call that is needed is one node of the graph, with all its inputs and outputs."""
    nodes = {node.op_type: node for node in all_nodes(graph) if node.domain == DOMAIN}
    for call in calls:
        node = nodes.get(call.op)
        if node is None and call.op not in needed:
            continue
        if node is None or (len(node.input), len(node.output)) != (len(call.shapes), len(call.outputs)):
            raise ExportError(
                f"Layer `{call.layer}` did not come through TensorFlow's optimizers as one node, so its attention "
                "cannot be replaced. Export it with `lowering='portable'`."
            )
