"""Rewrite TensorFlow `Case` as `If`, and inline conditionals whose condition is constant.

`keras.ops.switch` traces to `Case`, which tf2onnx does not know. `keras.ops.associative_scan` asks by `tf.cond` about
sizes that are known, and reads its axis, in those branches, from outside of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .._private_api import tensorflow_internals

_CONDITION = {"Case": "If", "StatelessCase": "StatelessIf"}
_CALL = {"If": "StatefulPartitionedCall", "StatelessIf": "PartitionedCall"}
_INDEX = "case_index"


def cases_as_conditions(graph: tf.compat.v1.GraphDef) -> None:
    """Write each `Case` as an `If` whose other branch is an `If`; an index that none has takes the last branch."""
    functions = {function.signature.name: function for function in graph.library.function}
    for nodes, inner in [(graph.node, False), *((function.node_def, True) for function in functions.values())]:
        for node in [node for node in nodes if node.op in _CONDITION]:
            branches = [functions[each.name] for each in node.attr["branches"].list.func]
            for branch in branches:
                _let_it_take_the_index(branch)
            other = branches[-1].signature.name
            for number in range(len(branches) - 2, 0, -1):
                other = _one_or_a_later(graph, node, branches[number], number, other)
            _make_condition(nodes, node, 0, branches[0].signature.name, other, inner)


def _let_it_take_the_index(branch: Any) -> None:
    """Make the index the first input of a branch: both of an `If` take the same."""
    arguments = list(branch.signature.input_arg)
    attributes = {number + 1: each for number, each in branch.arg_attr.items()}
    del branch.signature.input_arg[:]
    branch.arg_attr.clear()
    branch.signature.input_arg.add(name=_INDEX, type=tf.int32.as_datatype_enum)
    branch.signature.input_arg.extend(arguments)
    for number, each in attributes.items():
        branch.arg_attr[number].CopyFrom(each)


def _one_or_a_later(graph: tf.compat.v1.GraphDef, case: Any, branch: Any, number: int, other: str) -> str:
    """Add a function that takes a branch where the index is its number, and another function elsewhere."""
    made = graph.library.function.add()
    made.signature.CopyFrom(branch.signature)
    made.signature.name = f"{branch.signature.name}_or_later"
    del made.signature.control_output[:]
    node = made.node_def.add()
    node.CopyFrom(case)
    node.name = "chosen"
    del node.input[:]
    node.input.extend(each.name for each in branch.signature.input_arg)
    for place, output in enumerate(branch.signature.output_arg):
        made.ret[output.name] = f"chosen:output:{place}"
    _make_condition(made.node_def, node, number, branch.signature.name, other, inner=True)
    return str(made.signature.name)


def _make_condition(nodes: Any, case: Any, number: int, chosen: str, other: str, inner: bool) -> None:
    """Make an `If` of a `Case`: the branch of a number, or another function."""
    of, is_it = nodes.add(name=f"{case.name}/number", op="Const"), nodes.add(name=f"{case.name}/is_it", op="Equal")
    of.attr["dtype"].type = is_it.attr["T"].type = tf.int32.as_datatype_enum
    of.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
    is_it.input.extend([case.input[0], f"{of.name}:output:0" if inner else of.name])
    case.op = _CONDITION[case.op]
    case.input.insert(0, f"{is_it.name}:z:0" if inner else is_it.name)
    taken = list(case.attr["Tin"].list.type)
    del case.attr["branches"], case.attr["Tin"]
    case.attr["Tin"].list.type.extend([tf.int32.as_datatype_enum, *taken])
    case.attr["Tcond"].type = tf.bool.as_datatype_enum
    case.attr["then_branch"].func.name, case.attr["else_branch"].func.name = chosen, other


def known_conditions_resolved(graph: tf.compat.v1.GraphDef, optimized: Callable[[Any], Any]) -> Any:
    """Take the branch of each `If` whose condition is known, as often as inlining that branch shows another."""
    resolved = False
    while known := _known(graph, *_CALL):
        resolved = True
        for node in [node for node in graph.node if node.name in known]:
            taken = node.attr["then_branch" if known[node.name].all() else "else_branch"].func
            node.op = _CALL[node.op]
            del node.input[0]
            node.attr["f"].func.CopyFrom(taken)
            for name in ("then_branch", "else_branch", "Tcond", "output_shapes", "_lower_using_switch_merge"):
                if name in node.attr:
                    del node.attr[name]
        graph = optimized(graph)
    if resolved:
        _make_axes_constant(graph)
    return graph


def _make_axes_constant(graph: tf.compat.v1.GraphDef) -> None:
    """Make constants of axes that are computed of what is known: tf2onnx asks for constants."""
    known = _known(graph, "ConcatV2", "GatherV2")
    for node in [node for node in graph.node if node.name in known]:
        axis = graph.node.add(name=f"{node.name}/known_axis", op="Const")
        value = tf.make_tensor_proto(known[node.name])
        axis.attr["value"].tensor.CopyFrom(value)
        axis.attr["dtype"].type = value.dtype
        last = sum(not name.startswith("^") for name in node.input) - 1
        node.input[last] = axis.name


def _known(graph: tf.compat.v1.GraphDef, *ops: str) -> dict[str, np.ndarray]:
    """Return what is known of the last tensor that nodes of these operators read, of the first if a branch, by node."""
    if not any(node.op in ops for node in graph.node):
        return {}
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        read = {
            each.name: each.inputs[0 if each.type in _CALL else -1]
            for each in imported.get_operations()
            if each.type in ops
        }
        found = {name: tensorflow_internals.known_value(tensor) for name, tensor in read.items()}
    return {name: np.asarray(value) for name, value in found.items() if value is not None}
