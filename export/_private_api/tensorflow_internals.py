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
KEPT_APART = "_noinline"
COMPILED = "_XlaMustCompile"
KEEPS_ITS_ARGUMENTS = "_nospecialize"  # or constants would be moved into it


def content_of(table: Any, kinds: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and the values of a table, by its handle, also while a graph is put together.

    Args:
        table: The handle.
        kinds: The dtypes of keys and values.
    """
    with eager_mode():
        keys, values = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=kinds[0], Tvalues=kinds[1])
        return keys.numpy(), values.numpy()


def operations_of(run: Callable[[], Any]) -> int:
    """Return how many operations a function runs eagerly, a graph as one, and how many it traces meanwhile."""
    return work_of(run)[0]


def work_of(run: Callable[[], Any]) -> tuple[int, int]:
    """Return how many operations those are, and how many numbers they give."""
    sizes: list[int] = []

    def note(op: str, inputs: Any, attributes: Any, outputs: Any, *_: Any, **__: Any) -> None:
        sizes.append(sum(output.shape.num_elements() or 0 for output in outputs if hasattr(output, "shape")))

    op_callbacks.add_op_callback(note)
    try:
        run()
    finally:
        op_callbacks.remove_op_callback(note)
    return len(sizes), sum(sizes)


@contextlib.contextmanager
def through_traced(change: Callable[[str, Any, Any], Any]) -> Iterator[None]:
    """Let `change` see each output of the operations that are traced within the context, and give what is used for it.

    It is given the operation, its inputs and the output. What it adds to the graph it does not see.
    """

    def changed(op: str, inputs: Any, attributes: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> Any:
        return outputs if graph is None else [change(op, inputs, output) for output in outputs]

    op_callbacks.add_op_callback(changed)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(changed)


def put_variables_in_order(function: Any) -> None:
    """Give the variables of a concrete function the order in which it reads them: TensorFlow's is that of addresses."""
    places = {id(tensor): number for number, (tensor, _) in enumerate(function.graph.captures)}
    function.graph.variables = sorted(function.graph.variables, key=lambda each: places.get(id(each.handle), -1))


def write_same_uuid(file: Path) -> None:
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


def graph_with_constants(
    function: Any, is_left_out: Callable[[Any], bool], *, inline: bool
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
    known = convert_to_constants._CONTROL_FLOW_OPS
    convert_to_constants._CONTROL_FLOW_OPS = known | {"Case", "StatelessCase"}  # or it makes switches of them
    try:
        data = _ConstantsWithStandIns(function, is_left_out, inline)
    finally:
        convert_to_constants._CONTROL_FLOW_OPS = known
    graph, _ = convert_to_constants._replace_variables_by_constants(data)
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        graph = imported.as_graph_def(add_shapes=True)
    there = {node.name for node in graph.node}
    constants = {name: each.numpy for name, each in data.tensor_data.items() if name in there}
    return graph, {name: each.source for name, each in constants.items() if isinstance(each, _StandIn)}


class _StandIn:
    """What TensorFlow asks of an array before it writes it into a graph, where equal numbers are written once."""

    def __init__(self, source: Any) -> None:
        self.source, self.shape, self.dtype = source, tuple(source.shape), np.dtype(source.dtype.as_numpy_dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros((), self.dtype if dtype is None else dtype)


class _ConstantsWithStandIns(convert_to_constants._FunctionConverterDataInEager):
    def __init__(self, function: Any, is_left_out: Callable[[Any], bool], inline: bool) -> None:
        self._is_left_out = is_left_out
        super().__init__(function, lower_control_flow=False, aggressive_inlining=inline)

    def _eval(self, tensor: Any) -> Any:
        left_out = isinstance(tensor, tf.Variable) and self._is_left_out(tensor)
        return _StandIn(tensor) if left_out else super()._eval(tensor)


def optimized(config: tf.compat.v1.ConfigProto, meta_graph: Any) -> tf.compat.v1.GraphDef:
    """Return the graph of a meta graph after the optimizers of a session configuration."""
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def known_value(tensor: Any) -> Any:
    """Return the value of a tensor that TensorFlow can tell from constants and sizes that are known, or None."""
    found = tensor_util.constant_value(tensor)
    return tensor_util.try_evaluate_constant(tensor) if found is None else found


def runs_in_place(graph: Any, outermost: Any) -> bool:
    """Tell whether a graph is the outermost one, or a loop's body or a branch that lies in it, however deep.

    The condition of a loop is none: tf2onnx writes it twice. Nor is a function, which may be called more than once.
    """
    while graph is not outermost and isinstance(graph, WhileBodyFuncGraph | CondBranchFuncGraph):
        graph = graph.outer_graph
    return graph is outermost
