"""Private TensorFlow APIs: freezing, op callbacks, constant values."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef
from tensorflow.python.eager.context import eager_mode as eager_mode  # which others import from here
from tensorflow.python.framework import convert_to_constants, op_callbacks, tensor_util
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.ops.control_flow_v2_func_graphs import CondBranchFuncGraph, WhileBodyFuncGraph

# Attributes of functions and of their calls.
IMPLEMENTS = "_implements"  # what `experimental_implements` was
NO_INLINE = "_noinline"
COMPILED = "_XlaMustCompile"
NO_SPECIALIZE = "_nospecialize"  # or constants would be moved into it


def read_table(table: Any, dtypes: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and the values of a table, by its handle, also while a graph is put together.

    Args:
        table: The handle.
        kinds: The dtypes of keys and values.
    """
    with eager_mode():
        keys, values = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=dtypes[0], Tvalues=dtypes[1])
        return keys.numpy(), values.numpy()


def operations_of(run: Callable[[], Any]) -> int:
    """Return how many operations a function runs eagerly, a graph as one, and how many it traces meanwhile."""
    return work_of(run)[0]


def work_of(run: Callable[[], Any]) -> tuple[int, int]:
    """Return how many operations those are, and how many numbers they give."""
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
def through_traced(change: Callable[[str, Any, Any], Any]) -> Iterator[None]:
    """Let `change` see each output of the operations that are traced within the context, and give what is used for it.

    It is given the operation, its inputs and the output. What it adds to the graph it does not see.
    """

    def replace_outputs(
        op: str, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> Any:
        return outputs if graph is None else [change(op, inputs, output) for output in outputs]

    op_callbacks.add_op_callback(replace_outputs)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(replace_outputs)


def sort_variables(function: Any) -> None:
    """Give the variables of a concrete function the order in which it reads them: TensorFlow's is that of addresses."""
    capture_order = {id(tensor): index for index, (tensor, _) in enumerate(function.graph.captures)}
    function.graph.variables = sorted(
        function.graph.variables, key=lambda variable: capture_order.get(id(variable.handle), -1)
    )


def write_reproducible_uuid(file: Path) -> None:
    """Put the checksum of a SavedModel in the place of random digits, which older TensorFlow does not write."""
    fingerprint = FingerprintDef.FromString(file.read_bytes())
    if "uuid" in FingerprintDef.DESCRIPTOR.fields_by_name:
        fingerprint.uuid = str(fingerprint.saved_model_checksum)
        file.write_bytes(fingerprint.SerializeToString(deterministic=True))


def with_constants(function: Any) -> Any:
    """Return a concrete function whose variables are constants, and calls replaced by what is in them.

    While control flow stays as it is, all else may be optimized.
    """
    return convert_variables_to_constants_v2(function, lower_control_flow=False, aggressive_inlining=True)


def freeze_variables(
    function: Any, is_placeholder: Callable[[Any], bool], *, inline: bool
) -> tuple[tf.compat.v1.GraphDef, dict[str, Any]]:
    """Return the graph of a concrete function whose variables are constants, some of them without their content.

    Args:
        function: The concrete function.
        is_left_out: Told a variable, says whether its constant is to hold one zero, repeated. Tensors that the function
            captures, computed while a model was put together, stay as they are: TensorFlow asks them for an array.
        inline: Whether calls of functions are replaced by what is in them.

    Returns:
        The graph, and by the name of each such constant what it stands for.
    """
    function.graph.clear_collection("table_initializer")  # of tables that are made already; TensorFlow warns of them
    control_flow_ops = convert_to_constants._CONTROL_FLOW_OPS
    convert_to_constants._CONTROL_FLOW_OPS = control_flow_ops | {
        "Case",
        "StatelessCase",
    }  # or it makes switches of them
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
    """What TensorFlow asks of an array before it writes it into a graph, where equal numbers are written once."""

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
    """Return the value of a tensor that TensorFlow can tell from constants and sizes that are known, or None."""
    value = tensor_util.constant_value(tensor)
    return tensor_util.try_evaluate_constant(tensor) if value is None else value


def is_traced_once(graph: Any, outermost: Any) -> bool:
    """Tell whether a graph is the outermost one, or a loop's body or a branch that lies in it, however deep.

    The condition of a loop is none: tf2onnx writes it twice. Nor is a function, which may be called more than once.
    """
    while graph is not outermost and isinstance(graph, WhileBodyFuncGraph | CondBranchFuncGraph):
        graph = graph.outer_graph
    return graph is outermost
