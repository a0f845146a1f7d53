"""Builders of nodes and constants in a tf2onnx graph.

Expressions read like those of `_onnx/lazy_values.py`: `op.Softmax(scores, axis=-1)`, with attributes as keyword
arguments. Here a tensor is the name of a node's output, and each call writes a node.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from .._private_api.tf2onnx_internals import make_name
from .kernel_dtypes import WIDER_DTYPES, find_kernel_dtype, numpy_dtype

# The name of a tensor, or a constant
Operand = str | int | float | Sequence[float] | np.ndarray | np.generic
Shape = list[int] | None
# The reason why a node is unsupported, None after its conversion
RejectionReason = str | None


def constant_value(graph: Any, name: str) -> np.ndarray | None:
    """Return the value of a constant tensor, None if the tensor is not constant."""
    node = graph.get_node_by_output(name)
    return np.asarray(node.get_tensor_value(as_list=False)) if node is not None and node.is_const() else None


def fill_attribute(value: int, elem_type: int = TensorProto.INT64) -> TensorProto:
    """Return the attribute `value` of `ConstantOfShape`: a tensor (1,) with the number to repeat."""
    return helper.make_tensor("value", elem_type, [1], [value])


class GraphBuilder:
    """Builder of nodes in a tf2onnx graph.

    Attributes:
        graph: The graph.
        fold: The same operators with constant folding: computed at conversion time if all inputs are constants.

    Example:
        >>> op = GraphBuilder(graph)  # doctest: +SKIP
        >>> largest = op.ReduceMax(scores, [-1], keepdims=1)  # doctest: +SKIP
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.fold = ConstantFolder(self)

    def __getattr__(self, op_type: str) -> Callable[..., str]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return partial(self, op_type)

    def __call__(self, op_type: str, *inputs: Operand, output_dtype: int | None = None, **attributes: Any) -> str:
        """Write a node and return its output; without `output_dtype`, tf2onnx infers the element type."""
        return self._write(op_type, inputs, attributes, dtypes=None if output_dtype is None else [output_dtype])[0]

    def multi_output(self, op_type: str, outputs: Sequence[bool], *inputs: Operand, **attributes: Any) -> list[str]:
        """Write a node with several outputs, and return those that are True in `outputs`."""
        return [*compress(self._write(op_type, inputs, attributes, output_count=len(outputs)), outputs)]

    def constant(self, value: Operand) -> str:
        """Return a constant as a tensor: of int64 or float32, an array of its own dtype; return a tensor unchanged."""
        if isinstance(value, str):
            return value
        return str(self.graph.make_const(make_name("constant"), _to_array(value)).output[0])

    def concat_shape(self, *parts: str | int) -> str:
        """Join integers and 1-D tensors to one 1-D tensor, such as a shape."""
        segments: list[str | list[int]] = []
        for part in parts:
            if isinstance(part, int) and segments and isinstance(segments[-1], list):
                segments[-1].append(part)
            else:
                segments.append([part] if isinstance(part, int) else part)
        return self.Concat(*segments, axis=0) if len(segments) > 1 else self.constant(segments[0])

    def reshape(self, tensor: str, *dims: str | int, **attributes: int) -> str:
        """Reshape a tensor to the dims that integers and 1-D tensors join to."""
        return self.Reshape(tensor, self.concat_shape(*dims), **attributes)

    def arange(self, count: str) -> str:
        """Return 0 to count - 1, (count,); `count` has the shape (1,)."""
        return self.Range(0, self.Squeeze(count), 1)

    def dims(self, tensor: str, start: int = 0, end: int = 2**31) -> str:
        """Return the dims `start` to `end` of a tensor, (end - start,)."""
        # tf2onnx's optimizers ignore the attributes `start` and `end` of `Shape`
        return self.Slice(self.Shape(tensor), [start], [end], [0])

    def for_loop(self, count: Operand, step: Callable[..., Sequence[str]], *state: str) -> list[str]:
        """Write a `Loop`, and return its final state.

        Args:
            count: The trip count, (1,).
            step: Maps a builder of the body, the index of the iteration (a scalar) and the state to the next state.
            *state: Tensors of known ranks; shapes and dtypes do not change.
        """
        body = self.graph.create_new_graph_with_same_config()
        body.parent_graph = self.graph
        op = GraphBuilder(body)
        index = make_name("step")
        condition = make_name("go_on")
        body.add_graph_input(index, TensorProto.INT64, [])
        body.add_graph_input(condition, TensorProto.BOOL, [])
        dtypes = [self.graph.get_dtype(tensor) for tensor in state]
        shapes = [self.graph.get_shape(tensor) for tensor in state]
        body_state = [make_name("state") for _ in state]
        for name, dtype, shape in zip(body_state, dtypes, shapes, strict=True):
            body.add_graph_input(name, dtype, shape)
        results = [op.Identity(condition), *step(op, index, *body_state)]
        for name, dtype, shape in zip(results, [TensorProto.BOOL, *dtypes], [[], *shapes], strict=True):
            body.add_graph_output(name, dtype, shape)
        inputs = (self.fold.Squeeze(count, [0]), np.bool_(True), *state)
        options = {"branches": {"body": body}, "shapes": shapes, "dtypes": dtypes, "output_count": len(state)}
        return self._write("Loop", inputs, {}, **options)

    def _write(self, op_type: str, inputs: Sequence[Operand], attributes: dict[str, Any], **options: Any) -> list[str]:
        domain = attributes.pop("domain", "")
        names = [self.constant(operand) for operand in inputs]
        node = self.graph.make_node(op_type, names, attr=attributes, domain=domain, **options)
        return [str(name) for name in node.output]


class ConstantFolder:
    """Builder with constant folding: computes an operator if all inputs are constants, else writes a node."""

    def __init__(self, op: GraphBuilder) -> None:
        self._op = op

    def __getattr__(self, op_type: str) -> Callable[..., Operand]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return partial(self, op_type)

    def __call__(self, op_type: str, *inputs: Operand, **attributes: Any) -> Operand:
        if any(isinstance(operand, str) for operand in inputs):
            return self._op(op_type, *inputs, **attributes)
        arrays = {
            str(index): _to_array(operand) for index, operand in enumerate(inputs) if not isinstance(operand, str)
        }
        node = helper.make_node(op_type, [*arrays], ["result"], **attributes)
        results: list[np.ndarray] = ReferenceEvaluator(node).run(None, arrays)
        return np.asarray(results[0])


class NodeReplacement(GraphBuilder):
    """Replacement of a node, which is removed: `finish` writes the nodes that compute its outputs.

    Attributes:
        inputs: The names of the node's inputs.
        shapes: The shapes of the outputs, None if unknown.
        dtypes: The element types of the outputs.
        wider_dtypes: For each element type, those to compute in if it has no kernel, the preferred one first.
    """

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(graph)
        self.inputs: list[str] = list(node.input)
        self.shapes: list[Shape] = list(node.output_shapes)
        self.dtypes: list[int] = list(node.output_dtypes)
        self.wider_dtypes = WIDER_DTYPES
        self._outputs: list[str] = list(node.output)
        self._name = node.name
        graph.remove_node(node.name)

    @property
    def shape(self) -> Shape:
        """The shape of the first output, None if unknown."""
        return self.shapes[0]

    @property
    def dtype(self) -> int:
        """The element type of the first output."""
        return self.dtypes[0]

    def number(self, value: Any) -> np.ndarray:
        """Return a number, or several, as a constant of the element type of the first output."""
        return np.array(value, numpy_dtype(self.dtype))

    def finish(self, op_type: str, *inputs: Operand, output: int = 0, **attributes: Any) -> RejectionReason:
        """Write the node that computes an output, with its `shapes` and `dtypes`; return None."""
        options = {"outputs": [self._outputs[output]], "shapes": [self.shapes[output]], "dtypes": [self.dtypes[output]]}
        if len(self._outputs) == 1:
            options["name"] = self._name
        self._write(op_type, inputs, attributes, **options)
        return None

    def finish_all(self, op_type: str, *inputs: Operand, **attributes: Any) -> None:
        """Write the one node that computes all outputs."""
        self._write(op_type, inputs, attributes, outputs=self._outputs, shapes=self.shapes, dtypes=self.dtypes)

    def computation_dtype(self, op_type: str) -> int:
        """Return the element type to compute an operator in: `dtype`, or a wider one if onnxruntime has no kernel."""
        return find_kernel_dtype(op_type, self.dtype, self.wider_dtypes) or self.dtype

    def widen(self, tensor: str, op_type: str) -> str:
        """Cast a tensor from `dtype` to `computation_dtype`, before an operator."""
        dtype = self.computation_dtype(op_type)
        return tensor if dtype == self.dtype else self.Cast(tensor, to=dtype)

    def finish_cast(self, result: str, op_type: str) -> RejectionReason:
        """Cast the result of an operator from `computation_dtype` to `dtype`, as the first output; return None."""
        if self.computation_dtype(op_type) == self.dtype:
            return self.finish("Identity", result)
        return self.finish("Cast", result, to=self.dtype)


def _to_array(value: int | float | Sequence[float] | np.ndarray | np.generic) -> np.ndarray:
    array = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic):
        return array
    return array.astype(np.float32 if array.size and array.dtype.kind == "f" else np.int64)
