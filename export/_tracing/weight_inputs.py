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

# Operators that tf2onnx converts in the same way for constants and inputs. `constant_folding.py` later folds layout
# operators before them. Loops are missing: tf2onnx converts a loop to `LSTM` only if its weights are constants.
_WEIGHT_OPS = {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "GatherV2", "MatMul"}
_WEIGHT_OPS |= {"Conv2D", "Conv2DBackpropInput", "Conv3D", "DepthwiseConv2dNative"}
_LOOPS = {"StatelessWhile", "While"}
_SLICES = {"Slice", "StridedSlice"}
_LAYOUT_OPS = {"ExpandDims", "Reshape", "Squeeze", "Transpose"}


def is_large(tensor: Any) -> bool:
    """Return True if the size and dtype of a variable allow an input of the graph. Its consumers must allow it too."""
    return _count_bytes(tensor) >= MIN_INPUT_BYTES and tensor.dtype in (tf.float32, tf.float16, tf.float64)


def replace_by_inputs(
    graph: tf.compat.v1.GraphDef,
    variables: Mapping[str, tf.Variable],
    used_names: Collection[str],
    attention_functions: Collection[str],
) -> tuple[Weights, Weights]:
    """Replace placeholder constants in place: by inputs, or by their content if a consumer does not allow inputs.

    The keys of `variables` are the names of the placeholder constants. The names of the new inputs differ from
    `used_names`. `attention_functions` are the names of library functions that allow inputs as arguments.

    Returns:
        Two dicts of arrays by name. The first has the variables that became inputs. The second has all variables that
        the converter does not combine with other constants, those of the first included.
    """
    fit_in_one_file = fits_in_one_file(sum(map(_count_bytes, variables.values())))
    consumers = _find_consumers(graph, variables)
    used_names = {*used_names, *(node.name for node in graph.node)}
    new_names: dict[str, str] = {}
    weights: dict[str, np.ndarray] = {}
    unfolded_weights: dict[str, np.ndarray] = {}
    for node in graph.node:
        if node.name not in variables:
            continue
        variable = variables[node.name]
        constant_users = [user for user in consumers[node.name] if not _allows_input(user, attention_functions)]
        name = _choose_name(variable, node.name, {*used_names, *weights})
        if fit_in_one_file and constant_users:
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(to_array(variable)))
            # If the shape of a slice is static, TensorFlow's optimizers fold the slice into its consumer.
            slice_shapes = [user.attr["_output_shapes"].list.shape for user in constant_users if user.op in _SLICES]
            is_folded = any(tf.TensorShape(shape).is_fully_defined() for shapes in slice_shapes for shape in shapes)
            is_folded |= not {user.op for user in constant_users} <= _LOOPS | _SLICES
            unfolded_weights |= {} if is_folded else {name: to_array(variable)}
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
        node.attr.pop("_class", None)  # a colocation constraint, which may name a replaced constant
    return weights, unfolded_weights | weights


def _find_consumers(graph: tf.compat.v1.GraphDef, names: Collection[str]) -> dict[str, list[Any]]:
    """Return the consumers of each constant. Instead of `Identity` and layout operators, their consumers count."""
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


def _allows_input(consumer: Any, attention_functions: Collection[str]) -> bool:
    calls_attention = "f" in consumer.attr and consumer.attr["f"].func.name in attention_functions
    return consumer.op in _WEIGHT_OPS or calls_attention


def _rename_input(name: str, new_names: Mapping[str, str]) -> str:
    control_prefix, stem = name[: len(name) - len(name.lstrip("^"))], name.lstrip("^").partition(":")[0]
    return control_prefix + new_names[stem] if stem in new_names else name


def _choose_name(variable: tf.Variable, constant: str, used_names: Collection[str]) -> str:
    """Return the Keras path of a variable. If this name is in use, return the name of the placeholder constant."""
    path = variable.name.partition(":")[0]
    return constant if path in used_names else path


def to_array(variable: tf.Variable) -> np.ndarray:
    """Return the content of a variable, without a copy if the variable is in host memory."""
    return np.asarray(memoryview(tf.convert_to_tensor(variable)))


def _count_bytes(tensor: Any) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * int(tf.as_dtype(tensor.dtype).size)
