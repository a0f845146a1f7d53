"""Private TensorFlow APIs: freezing, op callbacks, constant values."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef
from tensorflow.python.eager.context import eager_mode as eager_mode  # re-exported
from tensorflow.python.framework import convert_to_constants, op_callbacks, tensor_util
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.ops.control_flow_v2_func_graphs import CondBranchFuncGraph, WhileBodyFuncGraph

# Attributes of functions and of their calls. `_implements` has the value of `experimental_implements`; without
# `_nospecialize` grappler moves constant arguments of a call into the function.
IMPLEMENTS = "_implements"
NO_INLINE = "_noinline"
COMPILED = "_XlaMustCompile"
NO_SPECIALIZE = "_nospecialize"


def read_table(table: Any, dtypes: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and values, of `dtypes`, of the table with handle `table`, also while a graph is traced."""
    with eager_mode():
        keys, values = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=dtypes[0], Tvalues=dtypes[1])
        return keys.numpy(), values.numpy()


def count_operations(run: Callable[[], Any]) -> int:
    """Return the number of operations that a function runs eagerly (a graph counts as one) or traces."""
    return count_work(run)[0]


def count_work(run: Callable[[], Any]) -> tuple[int, int]:
    """Return the number of operations that a function runs or traces, and of the elements of their outputs."""
    sizes: list[int] = []

    def record(op: str, inputs: Any, attributes: Any, outputs: Any, *_: Any, **__: Any) -> None:
        sizes.append(sum(output.shape.num_elements() or 0 for output in outputs if hasattr(output, "shape")))

    op_callbacks.add_op_callback(record)
    try:
        run()
    finally:
        op_callbacks.remove_op_callback(record)
    return len(sizes), sum(sizes)


@contextlib.contextmanager
def intercept_traced_ops(change: Callable[[str, Any, Any], Any]) -> Iterator[None]:
    """Replace each output of an operation traced within the context by `change(operation, inputs, output)`.

    Operations that `change` adds to the graph are not intercepted.
    """

    def replace(op: str, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> Any:
        return outputs if graph is None else [change(op, inputs, output) for output in outputs]

    op_callbacks.add_op_callback(replace)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(replace)


def sort_variables(function: Any) -> None:
    """Sort the variables of a concrete function by first read; TensorFlow sorts them by address in memory."""
    order = {id(tensor): index for index, (tensor, _) in enumerate(function.graph.captures)}
    function.graph.variables = sorted(function.graph.variables, key=lambda variable: order.get(id(variable.handle), -1))


def write_reproducible_uuid(file: Path) -> None:
    """Replace the random UUID of a SavedModel by its checksum; older TensorFlow writes no UUID."""
    fingerprint = FingerprintDef.FromString(file.read_bytes())
    if "uuid" in FingerprintDef.DESCRIPTOR.fields_by_name:
        fingerprint.uuid = str(fingerprint.saved_model_checksum)
        file.write_bytes(fingerprint.SerializeToString(deterministic=True))


def freeze_and_inline(function: Any) -> Any:
    """Return a concrete function with variables frozen to constants and calls inlined; loops and branches stay."""
    return convert_variables_to_constants_v2(function, lower_control_flow=False, aggressive_inlining=True)


def freeze_variables(
    function: Any, is_placeholder: Callable[[Any], bool], *, inline: bool
) -> tuple[tf.compat.v1.GraphDef, dict[str, Any]]:
    """Return the graph of a concrete function with variables frozen to constants, large ones to placeholder constants.

    Args:
        function: The concrete function.
        is_placeholder: Returns True if the constant of a variable must be a placeholder. Captured eager tensors are
            always frozen with their content.
        inline: Whether calls of functions are inlined.

    Returns:
        The graph, and the variable of each placeholder constant by name.
    """
    # TensorFlow warns of initializers of lookup tables, which have run already.
    function.graph.clear_collection("table_initializer")
    # TensorFlow lowers operators outside this set, such as `Case`, to `Switch` and `Merge`, which tf2onnx lacks.
    control_flow_ops = convert_to_constants._CONTROL_FLOW_OPS
    convert_to_constants._CONTROL_FLOW_OPS = control_flow_ops | {"Case", "StatelessCase"}
    try:
        data = _PlaceholderConverter(function, is_placeholder, inline)
    finally:
        convert_to_constants._CONTROL_FLOW_OPS = control_flow_ops
    graph, _ = convert_to_constants._replace_variables_by_constants(data)
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        graph = imported.as_graph_def(add_shapes=True)
    node_names = {node.name for node in graph.node}
    constants = {name: constant.numpy for name, constant in data.tensor_data.items() if name in node_names}
    return graph, {name: array.source for name, array in constants.items() if isinstance(array, _PlaceholderArray)}


class _PlaceholderArray:
    """Array interface that TensorFlow's freezing reads; the graph gets one repeated element instead of the content."""

    def __init__(self, source: Any) -> None:
        self.source, self.shape, self.dtype = source, tuple(source.shape), np.dtype(source.dtype.as_numpy_dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros((), self.dtype if dtype is None else dtype)


class _PlaceholderConverter(convert_to_constants._FunctionConverterDataInEager):
    def __init__(self, function: Any, is_placeholder: Callable[[Any], bool], inline: bool) -> None:
        self._is_placeholder = is_placeholder
        super().__init__(function, lower_control_flow=False, aggressive_inlining=inline)

    def _eval(self, tensor: Any) -> Any:
        is_placeholder = isinstance(tensor, tf.Variable) and self._is_placeholder(tensor)
        return _PlaceholderArray(tensor) if is_placeholder else super()._eval(tensor)


def run_optimizers(config: tf.compat.v1.ConfigProto, meta_graph: Any) -> tf.compat.v1.GraphDef:
    """Return the graph of a meta graph after the optimizers of a session configuration."""
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def constant_value(tensor: Any) -> Any:
    """Return the value of a tensor that TensorFlow can compute from constants and static sizes, or None."""
    value = tensor_util.constant_value(tensor)
    return tensor_util.try_evaluate_constant(tensor) if value is None else value


def is_traced_once(graph: Any, outermost: Any) -> bool:
    """Return True if a graph is the outermost graph, or a loop body or branch inside it, at any depth."""
    # False for the condition of a loop, which tf2onnx writes twice, and for a function, which may have several calls.
    while graph is not outermost and isinstance(graph, WhileBodyFuncGraph | CondBranchFuncGraph):
        graph = graph.outer_graph
    return graph is outermost
