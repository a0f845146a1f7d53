"""Build nodes and constants in a tf2onnx graph.

Expressions read like those of `_onnx/lazy_values.py`: `op.Softmax(scores, axis=-1)`, with attributes by keyword, and
helpers of the same names. Here a tensor is the name of a node's output, and a node is written when it is named.
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

Operand = str | int | float | Sequence[float] | np.ndarray | np.generic  # a tensor by its name, or a constant
Shape = list[int] | None
Refusal = str | None  # the reason why a handler cannot convert a node, None after the conversion


def constant_value(graph: Any, name: str) -> np.ndarray | None:
    """Return the value of a constant tensor, None if the tensor is not constant."""
    node = graph.get_node_by_output(name)
    return np.asarray(node.get_tensor_value(as_list=False)) if node is not None and node.is_const() else None


def fill_attribute(value: int, elem_type: int = TensorProto.INT64) -> TensorProto:
    """Return the attribute `value` of `ConstantOfShape`: the number to repeat."""
    return helper.make_tensor("value", elem_type, [1], [value])


class GraphBuilder:
    """Builds nodes in a graph of tf2onnx.

    Attributes:
        graph: The graph.
        fold: The same operators, computed at conversion time if all inputs are constants.

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
        """Write a node and return its output, whose element type is `output_dtype`, by default as ONNX infers it."""
        return self._write(op_type, inputs, attributes, dtypes=None if output_dtype is None else [output_dtype])[0]

    def write_outputs(self, op_type: str, outputs: Sequence[bool], *inputs: Operand, **attributes: Any) -> list[str]:
        """Return the outputs of an operator that has several; False in `outputs` leaves one out."""
        return [*compress(self._write(op_type, inputs, attributes, output_count=len(outputs)), outputs)]

    def constant(self, value: Operand) -> str:
        """Return a number or several as a tensor; a tensor is returned unchanged.

        Integers become int64 and floats float32; an array keeps its dtype.
        """
        if isinstance(value, str):
            return value
        return str(self.graph.make_const(make_name("constant"), _to_array(value)).output[0])

    def vector(self, *parts: str | int) -> str:
        """Return the 1-D tensor that integers and 1-D tensors join to, such as a shape."""
        joined: list[str | list[int]] = []
        for part in parts:
            if isinstance(part, int) and joined and isinstance(joined[-1], list):
                joined[-1].append(part)
            else:
                joined.append([part] if isinstance(part, int) else part)
        return self.Concat(*joined, axis=0) if len(joined) > 1 else self.constant(joined[0])

    def reshape(self, tensor: str, *dims: str | int, **attributes: int) -> str:
        """Return a tensor in the shape that integers and 1-D tensors join to."""
        return self.Reshape(tensor, self.vector(*dims), **attributes)

    def arange(self, count: str) -> str:
        """Return the integers from 0 to one less than a 1-D tensor of one number."""
        return self.Range(0, self.Squeeze(count), 1)

    def dims(self, tensor: str, start: int = 0, end: int = 2**31) -> str:
        """Return a part of the shape; tf2onnx's optimizers ignore the attributes `start` and `end` of `Shape`."""
        return self.Slice(self.Shape(tensor), [start], [end], [0])

    def for_loop(self, count: Operand, step: Callable[..., Sequence[str]], *state: str) -> list[str]:
        """Return the state after so many iterations of a `Loop`.

        Args:
            count: The number of iterations, a 1-D tensor of one number.
            step: Maps a builder of the body, the index of the iteration (a scalar) and the state to the next state.
            *state: Tensors of known ranks, which do not change.
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
        before = [make_name("state") for _ in state]
        for name, dtype, shape in zip(before, dtypes, shapes, strict=True):
            body.add_graph_input(name, dtype, shape)
        results = [op.Identity(condition), *step(op, index, *before)]
        for name, dtype, shape in zip(results, [TensorProto.BOOL, *dtypes], [[], *shapes], strict=True):
            body.add_graph_output(name, dtype, shape)
        inputs = (self.fold.Squeeze(count, [0]), np.bool_(True), *state)
        return self._write(
            "Loop", inputs, {}, branches={"body": body}, shapes=shapes, dtypes=dtypes, output_count=len(state)
        )

    def _write(self, op_type: str, inputs: Sequence[Operand], attributes: dict[str, Any], **options: Any) -> list[str]:
        domain = attributes.pop("domain", "")
        names = [self.constant(operand) for operand in inputs]
        node = self.graph.make_node(op_type, names, attr=attributes, domain=domain, **options)
        return [str(name) for name in node.output]


class ConstantFolder:
    """Operators that are computed at conversion time if all inputs are constants, and else written."""

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
    """Replaces a node, which is removed: `finish` writes the nodes with its outputs.

    Attributes:
        inputs: The names of its inputs.
        shapes: The shapes of its outputs, None where unknown.
        dtypes: The element types of its outputs.
        wider_dtypes: The element types to compute in instead of others, the first that has a kernel.
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
        """Return a constant of the element type of the first output."""
        return np.array(value, numpy_dtype(self.dtype))

    def finish(self, op_type: str, *inputs: Operand, output: int = 0, **attributes: Any) -> Refusal:
        """Write the node of an output, by default the first, with its `shapes` and `dtypes`; return None."""
        options = {"outputs": [self._outputs[output]], "shapes": [self.shapes[output]], "dtypes": [self.dtypes[output]]}
        if len(self._outputs) == 1:
            options["name"] = self._name
        self._write(op_type, inputs, attributes, **options)
        return None

    def finish_all(self, op_type: str, *inputs: Operand, **attributes: Any) -> None:
        """Write one node with all outputs."""
        self._write(op_type, inputs, attributes, outputs=self._outputs, shapes=self.shapes, dtypes=self.dtypes)

    def computation_dtype(self, op_type: str) -> int:
        """Return the element type to compute an operator in, which is wider if onnxruntime has no kernel of `dtype`."""
        return find_kernel_dtype(op_type, self.dtype, self.wider_dtypes) or self.dtype

    def widen(self, tensor: str, op_type: str) -> str:
        """Return a tensor of the element type `dtype` in that of `widened_dtype`."""
        dtype = self.computation_dtype(op_type)
        return tensor if dtype == self.dtype else self.Cast(tensor, to=dtype)

    def finish_cast(self, result: str, op_type: str) -> Refusal:
        """Write the first output from a result in the element type of `widened_dtype`; return None."""
        if self.computation_dtype(op_type) == self.dtype:
            return self.finish("Identity", result)
        return self.finish("Cast", result, to=self.dtype)


def _to_array(value: int | float | Sequence[float] | np.ndarray | np.generic) -> np.ndarray:
    array = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic):
        return array
    return array.astype(np.float32 if array.size and array.dtype.kind == "f" else np.int64)
