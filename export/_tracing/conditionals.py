"""Rewrite TensorFlow `Case` as `If`, and inline conditionals whose condition is constant.

`keras.ops.switch` traces to `Case`, which tf2onnx lacks. `keras.ops.associative_scan` uses `tf.cond` for sizes that are
known, and its branches read the axis from outside.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .._private_api import tensorflow_internals

_CONDITION = {"Case": "If", "StatelessCase": "StatelessIf"}
_CALL = {"If": "StatefulPartitionedCall", "StatelessIf": "PartitionedCall"}
_INDEX = "case_index"


def cases_as_conditions(graph: tf.compat.v1.GraphDef) -> None:
    """Rewrite each `Case` as nested `If`, in place; an index without a branch takes the last branch."""
    functions = {function.signature.name: function for function in graph.library.function}
    for nodes, is_inner in [(graph.node, False), *((function.node_def, True) for function in functions.values())]:
        for node in [node for node in nodes if node.op in _CONDITION]:
            branches = [functions[function.name] for function in node.attr["branches"].list.func]
            for branch in branches:
                _add_index_argument(branch)
            other = branches[-1].signature.name
            for number in range(len(branches) - 2, 0, -1):
                other = _add_choice(graph, node, branches[number], number, other)
            _make_condition(nodes, node, 0, branches[0].signature.name, other, is_inner)


def _add_index_argument(branch: Any) -> None:
    """Make the index the first argument of a branch: both branches of an `If` take the same arguments."""
    arguments = list(branch.signature.input_arg)
    attributes = {number + 1: attribute for number, attribute in branch.arg_attr.items()}
    del branch.signature.input_arg[:]
    branch.arg_attr.clear()
    branch.signature.input_arg.add(name=_INDEX, type=tf.int32.as_datatype_enum)
    branch.signature.input_arg.extend(arguments)
    for number, attribute in attributes.items():
        branch.arg_attr[number].CopyFrom(attribute)


def _add_choice(graph: tf.compat.v1.GraphDef, case: Any, branch: Any, number: int, other: str) -> str:
    """Add a function that calls a branch if the index is its number, or else another function; return its name."""
    choice = graph.library.function.add()
    choice.signature.CopyFrom(branch.signature)
    choice.signature.name = f"{branch.signature.name}_or_later"
    del choice.signature.control_output[:]
    node = choice.node_def.add()
    node.CopyFrom(case)
    node.name = "chosen"
    node.input[:] = [argument.name for argument in branch.signature.input_arg]
    for index, output in enumerate(branch.signature.output_arg):
        choice.ret[output.name] = f"chosen:output:{index}"
    _make_condition(choice.node_def, node, number, branch.signature.name, other, is_inner=True)
    return str(choice.signature.name)


def _make_condition(nodes: Any, case: Any, number: int, then: str, other: str, is_inner: bool) -> None:
    """Turn a `Case` into an `If` that calls one function if the index is a number, or else another function."""
    constant = nodes.add(name=f"{case.name}/number", op="Const")
    constant.attr["dtype"].type = tf.int32.as_datatype_enum
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
    equal = nodes.add(name=f"{case.name}/is_it", op="Equal")
    equal.attr["T"].type = tf.int32.as_datatype_enum
    equal.input.extend([case.input[0], f"{constant.name}:output:0" if is_inner else constant.name])
    case.op = _CONDITION[case.op]
    case.input.insert(0, f"{equal.name}:z:0" if is_inner else equal.name)
    case.attr["Tin"].list.type.insert(0, tf.int32.as_datatype_enum)
    case.attr["Tcond"].type = tf.bool.as_datatype_enum
    case.attr["then_branch"].func.name = then
    case.attr["else_branch"].func.name = other
    del case.attr["branches"]


def known_conditions_resolved(graph: tf.compat.v1.GraphDef, optimized: Callable[[Any], Any]) -> Any:
    """Replace each `If` with a known condition by a call of its branch, and repeat after each inlining."""
    is_resolved = False
    while values := _known_inputs(graph, *_CALL):
        is_resolved = True
        for node in [node for node in graph.node if node.name in values]:
            branch = node.attr["then_branch" if values[node.name].all() else "else_branch"].func
            node.op = _CALL[node.op]
            del node.input[0]
            node.attr["f"].func.CopyFrom(branch)
            for name in ("then_branch", "else_branch", "Tcond", "output_shapes", "_lower_using_switch_merge"):
                node.attr.pop(name, None)
        graph = optimized(graph)
    if is_resolved:
        _make_axes_constant(graph)
    return graph


def _make_axes_constant(graph: tf.compat.v1.GraphDef) -> None:
    """Replace axes that are computed from known values by constants, which tf2onnx requires."""
    values = _known_inputs(graph, "ConcatV2", "GatherV2")
    for node in [node for node in graph.node if node.name in values]:
        axis = graph.node.add(name=f"{node.name}/known_axis", op="Const")
        value = tf.make_tensor_proto(values[node.name])
        axis.attr["value"].tensor.CopyFrom(value)
        axis.attr["dtype"].type = value.dtype
        last = sum(not name.startswith("^") for name in node.input) - 1
        node.input[last] = axis.name


def _known_inputs(graph: tf.compat.v1.GraphDef, *ops: str) -> dict[str, np.ndarray]:
    """Return the known value of the condition of branches, of the last input of other operators, by node."""
    if not any(node.op in ops for node in graph.node):
        return {}
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        nodes = [node for node in imported.get_operations() if node.type in ops]
        inputs = {node.name: node.inputs[0 if node.type in _CALL else -1] for node in nodes}
        values = {name: tensorflow_internals.known_value(tensor) for name, tensor in inputs.items()}
    return {name: np.asarray(value) for name, value in values.items() if value is not None}
