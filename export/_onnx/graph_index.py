"""Index of a graph for rewrite rules: producers, constants, shapes and types."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .traced_model import Weights
from .traversal import iter_subgraphs

StaticShape = tuple[int | None, ...]


class GraphIndex:
    """Index of the graph of a model, or of a subgraph, with lookup in its outer scopes."""

    def __init__(
        self, graph: onnx.GraphProto, outer: GraphIndex | None, values: Sequence[onnx.ValueInfoProto] = ()
    ) -> None:
        """Index a graph inside an outer one, with types and shapes of its values."""
        self.graph, self._outer = graph, outer
        self.new_initializers: dict[str, np.ndarray] = {}  # constants that rewrites add to the graph
        self._producers = {name: node for node in graph.node for name in node.output}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._elem_types: dict[str, int] = {value.name: value.type.tensor_type.elem_type for value in values}
        self._shapes = {value.name: _read_shape(value) for value in values}
        self._shapes |= {name: tuple(tensor.dims) for name, tensor in self._constants.items()}
        self._local_names = {*self._producers, *self._constants, *(value.name for value in graph.input)}

    def _find_owner(self, name: str) -> GraphIndex:
        """Return the index of the innermost graph with a tensor: this graph, or an outer one."""
        return self if self._outer is None or name in self._local_names else self._outer._find_owner(name)

    def get_producer(self, name: str, *ops: str) -> onnx.NodeProto | None:
        """Return the node that computes a tensor, if its operator is one of `ops`."""
        node = self._find_owner(name)._producers.get(name)
        return node if node is not None and node.op_type in ops else None

    def skip_ops(self, name: str, *ops: str) -> str:
        """Return the tensor before a chain of `ops`, such as `Cast`, which follow the first inputs of the nodes."""
        while (node := self.get_producer(name, *ops)) is not None:
            name = node.input[0]
        return name

    def get_constant(self, name: str) -> np.ndarray | None:
        """Return the data of an initializer, or None for other tensors, such as weights outside the graph."""
        tensor = self._find_owner(name)._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def get_scalar(self, name: str) -> float | None:
        """Return the element of an initializer with one element, or None for other tensors."""
        array = self.get_constant(name)
        return float(array.item()) if array is not None and array.size == 1 else None

    def reshape_to_vector(self, name: str) -> str:
        """Return the name of a constant, reshaped to a 1-D tensor."""
        array = self.get_constant(name)
        if array is None or array.ndim == 1:
            return name
        self._find_owner(name).new_initializers[f"{name}/vector"] = array.reshape(-1)
        return f"{name}/vector"

    def get_shape(self, name: str) -> StaticShape | None:
        """Return the shape of a tensor, with None for dynamic axes, or None if the rank is unknown."""
        return self._find_owner(name)._shapes.get(name)

    def get_elem_type(self, name: str) -> int:
        """Return the element type of a tensor that is not a constant, 0 if it is unknown."""
        return self._find_owner(name)._elem_types.get(name, 0)

    def iter_input_orders(self, node: onnx.NodeProto | None) -> Iterator[tuple[str, str]]:
        """Yield the two inputs of a commutative node in either order; nothing without a node."""
        if node is not None:
            yield node.input[0], node.input[1]
            yield node.input[1], node.input[0]

    def get_first_input(self, name: str, op: str) -> str | None:
        """Return the first input of the node that computes a tensor, or None if another operator computes it."""
        node = self.get_producer(name, op)
        return None if node is None else str(node.input[0])

    def is_mean_over_last_axis(self, name: str) -> bool:
        """Return True if a tensor is a mean over the last axis, with `keepdims`."""
        node = self.get_producer(name, "ReduceMean")
        axis = None if node is None or len(node.input) < 2 else self.get_scalar(node.input[1])
        if node is None or axis is None or not get_int_attribute(node, "keepdims", 1):
            return False
        shape = self.get_shape(node.input[0])
        return axis == -1 or (shape is not None and axis == len(shape) - 1)

    def is_along_last_axis(self, name: str, source: str) -> bool:
        """Return True if a tensor is a float32 constant (1, ..., 1, D), where D is the last axis of the source."""
        array, shape = self.get_constant(name), self.get_shape(source)
        if array is None or array.dtype != np.float32 or not shape or array.ndim > len(shape):
            return False
        return array.ndim > 0 and array.size == array.shape[-1] == shape[-1]


def get_int_attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return an integer attribute of a node."""
    return next((entry.i for entry in node.attribute if entry.name == name), default)


def iter_graph_indexes(
    graph: onnx.GraphProto, with_shapes: onnx.GraphProto | None = None, outer: GraphIndex | None = None
) -> Iterator[GraphIndex]:
    """Yield the index of a graph, then of its subgraphs; `with_shapes` is the graph with inferred shapes."""
    typed_graph = graph if with_shapes is None else with_shapes
    nodes = GraphIndex(graph, outer, (*typed_graph.value_info, *typed_graph.input))
    yield nodes
    for node, typed_node in zip(graph.node, typed_graph.node, strict=True):
        for subgraph, typed_subgraph in zip(iter_subgraphs(node), iter_subgraphs(typed_node), strict=True):
            yield from iter_graph_indexes(subgraph, typed_subgraph, nodes)


def infer_shapes(model: onnx.ModelProto, weights: Weights | None = None) -> onnx.GraphProto:
    """Return the graph of a model with inferred shapes and types, or with its own if inference fails."""
    # Only shapes and axes (integers) are copied with their data: other initializers, and weights outside the graph,
    # are declared as inputs of their shape
    graph = onnx.GraphProto(name="inferred", node=model.graph.node, input=model.graph.input, output=model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    inputs = {value.name for value in graph.input}
    for name, array in (weights or {}).items():
        if name not in inputs:
            elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, elem_type, array.shape))
    for tensor in model.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims)))
    light_model = helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        light_model = onnx.shape_inference.infer_shapes(light_model, data_prop=True)
    return light_model.graph


def _read_shape(value: onnx.ValueInfoProto) -> StaticShape | None:
    tensor_type = value.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor_type.shape.dim)
    return shape if tensor_type.HasField("shape") else None
