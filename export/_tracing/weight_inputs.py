"""Turn large weights into graph inputs while the graph is optimized; the writer of the file makes them initializers."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from .._onnx.external_data import fits_in_one_file
from .._onnx.traced_model import Weights

# Minimum size in bytes of a weight that becomes an input: one memory page. TensorFlow's and tf2onnx's optimizers copy a
# graph with its constants a dozen times. Smaller weights stay constants, which the optimizers can fold.
MIN_INPUT_BYTES = 2**12

# Operators that tf2onnx converts in the same way for constants and inputs; `constant_folding.py` folds the layouts of
# inputs later. Loops are missing: tf2onnx converts a loop to `LSTM` only if its weights are constants.
_WEIGHT_OPS = {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "GatherV2", "MatMul"}
_WEIGHT_OPS |= {"Conv2D", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative"}
_LOOPS = {"StatelessWhile", "While"}
_SLICES = {"Slice", "StridedSlice"}
_LAYOUT_OPS = {"ExpandDims", "Reshape", "Squeeze", "Transpose"}


def is_large(tensor: Any) -> bool:
    """Return True if a variable becomes an input of the graph, provided that its consumers allow inputs."""
    return _count_bytes(tensor) >= MIN_INPUT_BYTES and tensor.dtype in (tf.float32, tf.float16, tf.float64)


def replace_by_inputs(
    graph: tf.compat.v1.GraphDef,
    variables: Mapping[str, tf.Variable],
    used_names: Collection[str],
    calls: Collection[str],
) -> tuple[Weights, Weights]:
    """Turn placeholder constants into inputs of a graph, or fill in their content, in place.

    `variables` are by name of their placeholder constant. Inputs must not have a name in `used_names`. Arguments of
    the functions `calls` may be inputs as well as constants.

    Returns:
        The content of the new inputs, and of all variables that the converter does not combine with other constants;
        each by name, which is the path of the variable.
    """
    is_one_file = fits_in_one_file(sum(map(_count_bytes, variables.values())))
    consumers = _find_consumers(graph, variables)
    used_names = {*used_names, *(node.name for node in graph.node)}
    new_names: dict[str, str] = {}
    weights: dict[str, np.ndarray] = {}
    unfolded: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.name not in variables:
            continue
        variable = variables[node.name]
        unsupported = [consumer for consumer in consumers[node.name] if consumer.op not in _WEIGHT_OPS]
        blockers = [consumer for consumer in unsupported if _find_called_function(consumer) not in calls]
        name = _choose_name(variable, node.name, {*used_names, *weights})
        if is_one_file and blockers:
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(to_array(variable)))
            # TensorFlow's optimizers fold a slice of static shape into its consumer.
            slices = [consumer.attr["_output_shapes"].list.shape for consumer in blockers if consumer.op in _SLICES]
            is_folded = any(tf.TensorShape(shape).is_fully_defined() for shapes in slices for shape in shapes)
            is_folded |= not {consumer.op for consumer in blockers} <= _LOOPS | _SLICES
            unfolded |= {} if is_folded else {name: to_array(variable)}
            continue
        weights[name] = to_array(variable)
        new_names[node.name] = name
        node.Clear()
        node.name, node.op = name, "Placeholder"
        node.attr["dtype"].type = tf.as_dtype(variable.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable.shape).as_proto())
        node.attr["_output_shapes"].list.shape.add().CopyFrom(node.attr["shape"].shape)
    for node in graph.node:
        node.input[:] = [_rename_input(name, new_names) for name in node.input]
        node.attr.pop("_class", None)  # a colocation constraint that names a constant
    return weights, unfolded | weights


def _find_consumers(graph: tf.compat.v1.GraphDef, names: Collection[str]) -> dict[str, list[Any]]:
    """Return the consumers of each constant, looking through `Identity` and layout operators."""
    direct_consumers: dict[str, list[Any]] = {}
    for node in graph.node:
        for tensor in node.input:
            if not tensor.startswith("^"):
                direct_consumers.setdefault(tensor.partition(":")[0], []).append(node)

    def search(name: str) -> Iterator[Any]:
        for node in direct_consumers.get(name, ()):
            if node.op == "Identity" or node.op in _LAYOUT_OPS:
                yield from search(node.name)
            else:
                yield node

    return {name: list(search(name)) for name in names}


def _find_called_function(node: Any) -> str | None:
    return node.attr["f"].func.name if "f" in node.attr else None


def _rename_input(name: str, new_names: Mapping[str, str]) -> str:
    control, stem = name[: len(name) - len(name.lstrip("^"))], name.lstrip("^").partition(":")[0]
    return control + new_names[stem] if stem in new_names else name


def _choose_name(variable: tf.Variable, constant: str, used_names: Collection[str]) -> str:
    """Return the Keras path of a variable, or the name of its constant if the path is in use."""
    path = variable.name.partition(":")[0]
    return constant if path in used_names else path


def to_array(variable: tf.Variable) -> np.ndarray:
    """Return the content of a variable, without a copy if the variable is in host memory."""
    return np.asarray(memoryview(tf.convert_to_tensor(variable)))


def _count_bytes(tensor: Any) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * int(tf.as_dtype(tensor.dtype).size)
