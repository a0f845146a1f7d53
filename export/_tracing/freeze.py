"""Freeze a traced function: variables to constants, calls inlined, attention calls kept.

What was traced as a named function of an attention layer stays a call, and becomes one ONNX node.
"""

from __future__ import annotations

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
from .._operators.graph_builder import GraphBuilder
from .._private_api import tensorflow_internals, tf2onnx_internals
from .._private_api.tf2onnx_internals import make_name
from .attention_calls import Call
from .conditionals import cases_as_conditions, known_conditions_resolved
from .reachable_calls import needed_calls
from .weight_inputs import is_large, move_out


@dataclass(frozen=True)
class Frozen:
    """A traced function as one graph.

    Attributes:
        graph: The graph.
        weights: Those that are inputs of the graph, by name.
        unfolded: Variables into which the converter folds nothing, by name.
        needed: The named functions that the outputs depend on.
    """

    graph: tf.compat.v1.GraphDef
    weights: Weights
    unfolded: Weights
    needed: set[str]


def frozen(function: Any, inputs: list[str], outputs: list[str], *, keep_calls: bool) -> Frozen:
    """Return the frozen graph of a concrete function.

    Args:
        function: The function.
        inputs: Names of its input tensors.
        outputs: Names of its output tensors.
        keep_calls: Whether named functions of attention layers stay calls.
    """
    # as tf2onnx does it, but for the weights and the calls
    graph, left_out = tensorflow_internals.graph_with_constants(function, is_large, inline=not keep_calls)
    for named in graph.library.function:
        if _op_of(named) is not None:
            named.attr[tensorflow_internals.KEEPS_ITS_ARGUMENTS].b = True  # weights are constants from here on
    weights, unfolded = move_out(graph, left_out, taken=[*function.structured_outputs], calls=_ops_by_function(graph))
    inputs = [*inputs, *(f"{name}:0" for name in weights)]
    cases_as_conditions(graph)
    needed = needed_calls(graph, outputs, _ops_by_function(graph)) if keep_calls else set()

    def optimized(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        return tf2onnx_internals.optimized(_inlined(graph, inputs, outputs), inputs, outputs)

    graph = _inlined(tf2onnx_internals.optimized(tf2onnx_internals.mended(graph), inputs, outputs), inputs, outputs)
    return Frozen(_in_order(known_conditions_resolved(graph, optimized)), weights, unfolded, needed)


def _in_order(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Put nodes and functions in the order of their names: that of TensorFlow's optimizers is chance."""
    refill(graph.node, sorted(graph.node, key=lambda node: node.name))
    refill(graph.library.function, sorted(graph.library.function, key=lambda function: function.signature.name))
    for function in graph.library.function:
        refill(function.node_def, sorted(function.node_def, key=lambda node: node.name))
    return graph


def _ops_by_function(graph: tf.compat.v1.GraphDef) -> dict[str, str]:
    found = ((function.signature.name, _op_of(function)) for function in graph.library.function)
    return {name: op for name, op in found if op is not None}


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
            if mark in holder.attr:
                del holder.attr[mark]
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.optimizers.append("function")
    config.graph_options.rewrite_options.min_graph_nodes = -1  # or graphs of a few nodes are left as they are
    with tf.Graph().as_default():  # export_meta_graph refuses to run eagerly
        meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph)
    meta_graph.collection_def["train_op"].node_list.value.extend(inputs + outputs)  # what the optimizer must keep
    return tensorflow_internals.optimized(config, meta_graph)


def call_handlers(graph: tf.compat.v1.GraphDef, calls: Sequence[Call]) -> dict[str, Any]:
    """Return tf2onnx's handlers for the calls that are left: one node for each, with all inputs and outputs.

    Freezing itself optimizes, and drops outputs that nobody reads; what is left tells by its name which it was.
    """
    named = {each.signature.name: each for each in graph.library.function if _op_of(each) is not None}
    by_op = {call.op: call for call in calls}

    def one_node(context: Any, node: Any, name: str, arguments: Any) -> None:
        function = named.get(node.get_attr_str("f"))
        if function is None:
            return  # stays as it is, and is refused as an op without mapping
        call = by_op[str(_op_of(function))]
        given, write = iter(node.input), GraphBuilder(context)
        inputs = [write.constant(call.constants[x]) if x in call.constants else next(given) for x in call.shapes]
        kept = {_number(each.name): index for index, each in enumerate(function.signature.output_arg)}
        outputs, shapes, dtypes = node.output, node.output_shapes, node.output_dtypes
        context.remove_node(name)
        numbers = range(len(call.outputs))
        context.make_node(
            call.op,
            [*inputs, *given],
            outputs=[outputs[kept[number]] if number in kept else make_name(name) for number in numbers],
            shapes=[shapes[kept[number]] if number in kept else None for number in numbers],
            dtypes=[dtypes[kept[number]] if number in kept else TensorProto.FLOAT for number in numbers],
            domain=DOMAIN,
            name=name,
        )

    return {"PartitionedCall": (one_node, []), "StatefulPartitionedCall": (one_node, [])}


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
