"""Rewrite TensorFlow `Case` as `If`, and inline conditionals whose condition is constant."""

# `keras.ops.switch` traces to `Case`, which tf2onnx lacks: case(i, f0, f1, f2) becomes if(i == 0, f0, f1_or_later),
# with f1_or_later = if(i == 1, f1, f2). As in TensorFlow, an index out of range selects the last branch.
# `keras.ops.associative_scan` calls `tf.cond` with conditions on static sizes; its branches capture the axis, which
# tf2onnx accepts as a constant only. So such a conditional is inlined, and axes are evaluated to constants.

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .._private_api import tensorflow_internals

_IF_BY_CASE = {"Case": "If", "StatelessCase": "StatelessIf"}
_CALL_BY_IF = {"If": "StatefulPartitionedCall", "StatelessIf": "PartitionedCall"}
_INDEX_ARGUMENT = "case_index"


def rewrite_case_as_if(graph: tf.compat.v1.GraphDef) -> None:
    """Rewrite each `Case` as nested `If`, in place."""
    functions = {function.signature.name: function for function in graph.library.function}
    for nodes, is_inner in [(graph.node, False), *((function.node_def, True) for function in functions.values())]:
        for node in [node for node in nodes if node.op in _IF_BY_CASE]:
            branches = [functions[function.name] for function in node.attr["branches"].list.func]
            for branch in branches:
                _add_index_argument(branch)
            else_branch = branches[-1].signature.name
            for index in range(len(branches) - 2, 0, -1):
                else_branch = _add_branch_or_later(graph, node, branches[index], index, else_branch)
            _turn_case_into_if(nodes, node, 0, branches[0].signature.name, else_branch, is_inner)


def _add_index_argument(branch: Any) -> None:
    """Add the index as the first argument of a branch, since both branches of an `If` have the same arguments."""
    arguments = list(branch.signature.input_arg)
    attributes = {position + 1: attribute for position, attribute in branch.arg_attr.items()}
    del branch.signature.input_arg[:]
    branch.arg_attr.clear()
    branch.signature.input_arg.add(name=_INDEX_ARGUMENT, type=tf.int32.as_datatype_enum)
    branch.signature.input_arg.extend(arguments)
    for position, attribute in attributes.items():
        branch.arg_attr[position].CopyFrom(attribute)


def _add_branch_or_later(graph: tf.compat.v1.GraphDef, case: Any, branch: Any, index: int, else_branch: str) -> str:
    """Add a function that calls `branch` at `index`, or else `else_branch`; return its name."""
    choice = graph.library.function.add()
    choice.signature.CopyFrom(branch.signature)
    choice.signature.name = f"{branch.signature.name}_or_later"
    del choice.signature.control_output[:]
    node = choice.node_def.add()
    node.CopyFrom(case)
    node.name = "chosen"
    node.input[:] = [argument.name for argument in branch.signature.input_arg]
    for position, output in enumerate(branch.signature.output_arg):
        choice.ret[output.name] = f"chosen:output:{position}"
    _turn_case_into_if(choice.node_def, node, index, branch.signature.name, else_branch, is_inner=True)
    return str(choice.signature.name)


def _turn_case_into_if(nodes: Any, case: Any, index: int, then_branch: str, else_branch: str, is_inner: bool) -> None:
    """Turn a `Case` into an `If` that calls `then_branch` if its index is `index`, or else `else_branch`."""
    constant = nodes.add(name=f"{case.name}/number", op="Const")
    constant.attr["dtype"].type = tf.int32.as_datatype_enum
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(index, tf.int32))
    equal = nodes.add(name=f"{case.name}/is_it", op="Equal")
    equal.attr["T"].type = tf.int32.as_datatype_enum
    equal.input.extend([case.input[0], f"{constant.name}:output:0" if is_inner else constant.name])
    case.op = _IF_BY_CASE[case.op]
    case.input.insert(0, f"{equal.name}:z:0" if is_inner else equal.name)
    case.attr["Tin"].list.type.insert(0, tf.int32.as_datatype_enum)
    case.attr["Tcond"].type = tf.bool.as_datatype_enum
    case.attr["then_branch"].func.name = then_branch
    case.attr["else_branch"].func.name = else_branch
    del case.attr["branches"]


def resolve_constant_ifs(graph: tf.compat.v1.GraphDef, optimize: Callable[[Any], Any]) -> Any:
    """Replace each `If` with a constant condition by a call of its branch, until none is left after inlining."""
    is_resolved = False
    while values := _find_constant_inputs(graph, *_CALL_BY_IF):
        is_resolved = True
        for node in [node for node in graph.node if node.name in values]:
            branch = node.attr["then_branch" if values[node.name].all() else "else_branch"].func
            node.op = _CALL_BY_IF[node.op]
            del node.input[0]
            node.attr["f"].func.CopyFrom(branch)
            for name in ("then_branch", "else_branch", "Tcond", "output_shapes", "_lower_using_switch_merge"):
                node.attr.pop(name, None)
        graph = optimize(graph)
    if is_resolved:
        _make_axes_constant(graph)
    return graph


def _make_axes_constant(graph: tf.compat.v1.GraphDef) -> None:
    """Replace axes that can be computed from constants by constants, which tf2onnx requires."""
    values = _find_constant_inputs(graph, "ConcatV2", "GatherV2")
    for node in [node for node in graph.node if node.name in values]:
        axis = graph.node.add(name=f"{node.name}/known_axis", op="Const")
        value = tf.make_tensor_proto(values[node.name])
        axis.attr["value"].tensor.CopyFrom(value)
        axis.attr["dtype"].type = value.dtype
        axis_index = sum(not name.startswith("^") for name in node.input) - 1
        node.input[axis_index] = axis.name


def _find_constant_inputs(graph: tf.compat.v1.GraphDef, *ops: str) -> dict[str, np.ndarray]:
    """Return constant conditions of branches and constant last inputs of other operators, by node name."""
    if not any(node.op in ops for node in graph.node):
        return {}
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        nodes = [node for node in imported.get_operations() if node.type in ops]
        inputs = {node.name: node.inputs[0 if node.type in _CALL_BY_IF else -1] for node in nodes}
        values = {name: tensorflow_internals.constant_value(tensor) for name, tensor in inputs.items()}
    return {name: np.asarray(value) for name, value in values.items() if value is not None}
