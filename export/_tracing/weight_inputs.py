"""Turn large weights into graph inputs while the graph is optimized.

A large weight is an input of the graph while that is optimized, and becomes an initializer when the file is written.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .._onnx.external_data import fit_in_one_file
from .._onnx.traced_model import Weights

LARGE = 2**12  # bytes from which a weight is kept out of the graph: one page

# Ops that are written alike whether they take a constant or not, once `folding` has laid it out. Loops are not: tf2onnx
# makes an LSTM of one only if its weights are constants.
_TAKE_INPUTS = {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "GatherV2", "MatMul"}
_TAKE_INPUTS |= {"Conv2D", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative"}
_LOOPS = {"StatelessWhile", "While"}
_SLICES = {"Slice", "StridedSlice"}
_LAY_OUT = {"ExpandDims", "Reshape", "Squeeze", "Transpose"}


def is_large(tensor: Any) -> bool:
    """Tell whether a variable is to be kept out of the graph, if what takes it allows that."""
    return _bytes(tensor) >= LARGE and tensor.dtype in (tf.float32, tf.float16, tf.float64)


def move_out(
    graph: tf.compat.v1.GraphDef, left_out: Mapping[str, tf.Variable], taken: Collection[str], calls: Collection[str]
) -> tuple[Weights, Weights]:
    """Turn constants without content into inputs of a graph, or give them their content, in place.

    Args:
        graph: The graph.
        left_out: By the name of each such constant the variable that it stands for.
        taken: Names that the inputs may not have.
        calls: Names of functions that take inputs as well as constants.

    Returns:
        The content of each new input by its name, which is the path of the variable; and, likewise, of all variables
        into which the converter folds nothing.
    """
    whole = fit_in_one_file(sum(map(_bytes, left_out.values())))
    users = _users(graph, left_out)
    taken = {*taken, *(node.name for node in graph.node)}
    renamed: dict[str, str] = {}
    weights: dict[str, np.ndarray] = {}
    unfolded: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.name not in left_out:
            continue
        variable = left_out[node.name]
        others = [user for user in users[node.name] if user.op not in _TAKE_INPUTS and _called(user) not in calls]
        name = _name(variable, node.name, {*taken, *weights})
        if whole and others:
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array_of(variable)))
            # TensorFlow's optimizers fold a slice of known size into what reads it
            slices = [user.attr["_output_shapes"].list.shape for user in others if user.op in _SLICES]
            is_folded = any(tf.TensorShape(shape).is_fully_defined() for shapes in slices for shape in shapes)
            is_folded |= not {user.op for user in others} <= _LOOPS | _SLICES
            unfolded |= {} if is_folded else {name: array_of(variable)}
            continue
        weights[name] = array_of(variable)
        renamed[node.name] = name
        node.Clear()
        node.name, node.op = name, "Placeholder"
        node.attr["dtype"].type = tf.as_dtype(variable.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable.shape).as_proto())
        node.attr["_output_shapes"].list.shape.add().CopyFrom(node.attr["shape"].shape)
    for node in graph.node:
        node.input[:] = [_renamed(each, renamed) for each in node.input]
        node.attr.pop("_class", None)  # names the constant whose device it shares
    return weights, unfolded | weights


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


def array_of(variable: tf.Variable) -> np.ndarray:
    """Return the content of a variable, without a copy where it is in this machine's memory."""
    return np.asarray(memoryview(tf.convert_to_tensor(variable)))


def _bytes(tensor: Any) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * int(tf.as_dtype(tensor.dtype).size)
