"""Index of a graph for rewrite rules: producers, constants, shapes and types."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .traced_model import Weights
from .traversal import graphs_in

Sizes = tuple[int | None, ...]


class Nodes:
    """An index of the graph of a model, or of a body or branch, which sees the graphs around it."""

    def __init__(self, graph: onnx.GraphProto, outer: Nodes | None, values: Sequence[onnx.ValueInfoProto] = ()) -> None:
        """Index a graph within another one, with the known types and shapes of its tensors."""
        self.graph, self._outer = graph, outer
        self.added: dict[str, np.ndarray] = {}  # constants that rewrites add to the graph
        self._makers = {name: node for node in graph.node for name in node.output}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._kinds: dict[str, int] = {value.name: value.type.tensor_type.elem_type for value in values}
        self._sizes = {value.name: _sizes(value) for value in values}
        self._sizes |= {name: tuple(tensor.dims) for name, tensor in self._constants.items()}
        self._own = {*self._makers, *self._constants, *(value.name for value in graph.input)}

    def _owner(self, name: str) -> Nodes:
        """Return the index of the graph that computes or holds a tensor: this graph, or one around it."""
        return self if self._outer is None or name in self._own else self._outer._owner(name)

    def maker(self, name: str, *ops: str) -> onnx.NodeProto | None:
        """Return the node that computes a tensor, if its type is one of these."""
        node = self._owner(name)._makers.get(name)
        return node if node is not None and node.op_type in ops else None

    def source_of(self, name: str, *ops: str) -> str:
        """Return the first input of the chain of such operators that ends in a tensor, without a chain the tensor."""
        while (node := self.maker(name, *ops)) is not None:
            name = node.input[0]
        return name

    def constant(self, name: str) -> np.ndarray | None:
        """Return the content of an initializer, which weights outside the graph are not."""
        tensor = self._owner(name)._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def number(self, name: str) -> float | None:
        """Return the number in an initializer with one element, or None for any other tensor."""
        array = self.constant(name)
        return float(array.item()) if array is not None and array.size == 1 else None

    def as_vector(self, name: str) -> str:
        """Return the name of a constant as a vector."""
        array = self.constant(name)
        if array is None or array.ndim == 1:
            return name
        self._owner(name).added[f"{name}/vector"] = array.reshape(-1)
        return f"{name}/vector"

    def sizes(self, name: str) -> Sizes | None:
        """Return the shape of a tensor, None for unknown axes, or None if the rank is unknown."""
        return self._owner(name)._sizes.get(name)

    def kind(self, name: str) -> int:
        """Return the element type of a tensor that is not a constant, 0 if it is unknown."""
        return self._owner(name)._kinds.get(name, 0)

    def both_orders(self, node: onnx.NodeProto | None) -> Iterator[tuple[str, str]]:
        """Yield the two inputs of a node in either order; nothing without a node."""
        if node is not None:
            yield node.input[0], node.input[1]
            yield node.input[1], node.input[0]

    def only_input(self, name: str, op: str) -> str | None:
        """Return the first input of the node that computes a tensor, or None if another operator computes it."""
        node = self.maker(name, op)
        return None if node is None else str(node.input[0])

    def is_mean_over_last_axis(self, name: str) -> bool:
        """Return whether a tensor is a mean over the last axis, which stays as an axis of length 1."""
        node = self.maker(name, "ReduceMean")
        axis = None if node is None or len(node.input) < 2 else self.number(node.input[1])
        if node is None or axis is None or not attribute(node, "keepdims", 1):
            return False
        sizes = self.sizes(node.input[0])
        return axis == -1 or (sizes is not None and axis == len(sizes) - 1)

    def is_along_last_axis(self, name: str, source: str) -> bool:
        """Return whether a tensor is a float32 constant of shape (1, ..., 1, D), with D the last axis of the source."""
        array, sizes = self.constant(name), self.sizes(source)
        if array is None or array.dtype != np.float32 or not sizes or array.ndim > len(sizes):
            return False
        return array.ndim > 0 and array.size == array.shape[-1] == sizes[-1]


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return an integer attribute of a node."""
    return next((entry.i for entry in node.attribute if entry.name == name), default)


def views(
    graph: onnx.GraphProto, with_shapes: onnx.GraphProto | None = None, outer: Nodes | None = None
) -> Iterator[Nodes]:
    """Yield the index of a graph, and then those of its subgraphs; `with_shapes` is the graph with inferred shapes."""
    typed_graph = graph if with_shapes is None else with_shapes
    nodes = Nodes(graph, outer, (*typed_graph.value_info, *typed_graph.input))
    yield nodes
    for node, same_node in zip(graph.node, typed_graph.node, strict=True):
        for inner, same_inner in zip(graphs_in(node), graphs_in(same_node), strict=True):
            yield from views(inner, same_inner, nodes)


def inferred(model: onnx.ModelProto, weights: Weights | None = None) -> onnx.GraphProto:
    """Return the graph of a model with the shapes and types that onnx infers, or with those of the model.

    Large initializers, and weights that are kept outside the graph, take part without their content.
    """
    graph = onnx.GraphProto(name="inferred", node=model.graph.node, input=model.graph.input, output=model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    inputs = {value.name for value in graph.input}
    for name, array in (weights or {}).items():
        if name not in inputs:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    for tensor in model.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):  # shapes and axes
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims)))
    light = helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        light = onnx.shape_inference.infer_shapes(light, data_prop=True)
    return light.graph


def _sizes(value: onnx.ValueInfoProto) -> Sizes | None:
    kind = value.type.tensor_type
    sizes = tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in kind.shape.dim)
    return sizes if kind.HasField("shape") else None
