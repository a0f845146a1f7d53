"""Weights on their way around TensorFlow's and tf2onnx's optimizers, which copy a graph with all in it a dozen times.

A large weight is an input of the graph while that is optimized, and becomes an initializer when the file is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .._graphs.external_data import fit_in_one_file
from .._graphs.traced import Weights

LARGE = 2**12  # bytes from which a weight is kept out of the graph: one page

# Ops that are written alike whether they take a constant or not, once `folding` has laid it out. Loops are not: tf2onnx
# makes an LSTM of one only if its weights are constants.
_TAKE_INPUTS = {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "GatherV2", "MatMul"}
_TAKE_INPUTS |= {"Conv2D", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative"}
_LAY_OUT = {"ExpandDims", "Reshape", "Squeeze", "Transpose"}


def is_large(tensor: Any) -> bool:
    """Tell whether a variable is to be kept out of the graph, if what takes it allows that."""
    return _bytes(tensor) >= LARGE and tensor.dtype in (tf.float32, tf.float16, tf.float64)


def move_out(
    graph: tf.compat.v1.GraphDef, left_out: Mapping[str, tf.Variable], taken: Collection[str], calls: Collection[str]
) -> Weights:
    """Turn constants without content into inputs of a graph, or give them their content, in place.

    Args:
        graph: The graph.
        left_out: By the name of each such constant the variable that it stands for.
        taken: Names that the inputs may not have.
        calls: Names of functions that take inputs as well as constants.

    Returns:
        The content of each new input by its name, which is the path of the variable.
    """
    whole = fit_in_one_file(sum(map(_bytes, left_out.values())))
    users = _users(graph, left_out)
    taken = {*taken, *(node.name for node in graph.node)}
    renamed: dict[str, str] = {}
    weights: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.name not in left_out:
            continue
        variable = left_out[node.name]
        if whole and not all(user.op in _TAKE_INPUTS or _called(user) in calls for user in users[node.name]):
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(_array(variable)))
            continue
        name = _name(variable, node.name, {*taken, *weights})
        weights[name] = _array(variable)
        renamed[node.name] = name
        node.Clear()
        node.name, node.op = name, "Placeholder"
        node.attr["dtype"].type = tf.as_dtype(variable.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable.shape).as_proto())
        node.attr["_output_shapes"].list.shape.add().CopyFrom(node.attr["shape"].shape)
    for node in graph.node:
        node.input[:] = [_renamed(each, renamed) for each in node.input]
        node.attr.pop("_class", None)  # names the constant whose device it shares
    return weights


def tables_in_loops(graph: tf.compat.v1.GraphDef, left_out: Mapping[str, tf.Variable]) -> Weights:
    """Return by their paths the variables of which loops read rows, if nothing else reads the variables."""
    functions = {function.signature.name: function for function in graph.library.function}

    def readers(nodes: Iterable[Any], name: str) -> Iterator[str]:
        for node in nodes:
            for index in [index for index, source in enumerate(node.input) if source.partition(":")[0] == name]:
                for part in (functions[node.attr[key].func.name] for key in ("cond", "body") if key in node.attr):
                    yield from readers(part.node_def, part.signature.input_arg[index].name)
                yield from readers(nodes, node.name) if node.op == "Identity" else [node.op]

    loops, users = {"While", "StatelessWhile"}, _users(graph, left_out)
    in_loops = [name for name in left_out if not loops.isdisjoint(user.op for user in users[name])]
    tables = [left_out[name] for name in in_loops if {*readers(graph.node, name)} - loops == {"GatherV2"}]
    return {_name(variable, "", ()): _array(variable) for variable in tables}


def _users(graph: tf.compat.v1.GraphDef, names: Collection[str]) -> dict[str, list[Any]]:
    """Return the nodes that take each constant, in the place of those that only hand it on."""
    takers: dict[str, list[Any]] = {}
    for node in graph.node:
        for each in node.input:
            if not each.startswith("^"):
                takers.setdefault(each.partition(":")[0], []).append(node)

    def behind(name: str) -> Iterator[Any]:
        for node in takers.get(name, ()):
            if node.op == "Identity" or node.op in _LAY_OUT:
                yield from behind(node.name)
            else:
                yield node

    return {name: list(behind(name)) for name in names}


def _called(node: Any) -> str | None:
    return node.attr["f"].func.name if "f" in node.attr else None


def _renamed(name: str, renamed: Mapping[str, str]) -> str:
    control, stem = name[: len(name) - len(name.lstrip("^"))], name.lstrip("^").partition(":")[0]
    return control + renamed[stem] if stem in renamed else name


def _name(variable: tf.Variable, constant: str, taken: Collection[str]) -> str:
    """Return the path that Keras gave a variable, or the name of its constant if something else is called so."""
    path = variable.name.partition(":")[0]
    return constant if path in taken else path


def _array(variable: tf.Variable) -> np.ndarray:
    """Return the content of a variable, without a copy where it is in this machine's memory."""
    return np.asarray(memoryview(tf.convert_to_tensor(variable)))


def _bytes(tensor: Any) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * int(tf.as_dtype(tensor.dtype).size)
