"""The nodes of a graph by what they make, as rules that look for patterns ask for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

Sizes = tuple[int | None, ...]


class Nodes:
    """A graph to look for patterns in.

    Attributes:
        added: Constants that are needed beside those of the graph, by name.

    Args:
        model: The model of the graph. Those of its inputs that are weights have a shape like others.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._makers = {name: node for node in graph.node for name in node.output}
        self._constants = {each.name: each for each in graph.initializer}
        self._sizes = {value.name: _sizes(value) for value in _inferred(model)}
        self._sizes |= {name: tuple(tensor.dims) for name, tensor in self._constants.items()}
        self.added: dict[str, np.ndarray] = {}

    def maker(self, name: str, *ops: str) -> onnx.NodeProto | None:
        """Return the node that makes a tensor, if it is one of these ops."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type in ops else None

    def behind(self, name: str, *ops: str) -> str:
        """Return the first input of the chain of such ops that makes a tensor; its own name where there is none."""
        while (node := self.maker(name, *ops)) is not None:
            name = node.input[0]
        return name

    def constant(self, name: str) -> np.ndarray | None:
        """Return a small constant: an initializer, and no weight that is kept out of the graph."""
        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def as_vector(self, name: str) -> str:
        """Return the name under which a constant has one axis."""
        array = self.constant(name)
        if array is None or array.ndim == 1:
            return name
        self.added[f"{name}/vector"] = array.reshape(-1)
        return f"{name}/vector"

    def sizes(self, name: str) -> Sizes | None:
        """Return the shape of a tensor as far as it is known, or None where not even its rank is."""
        return self._sizes.get(name)

    def both_orders(self, node: onnx.NodeProto | None) -> Iterator[tuple[str, str]]:
        """Yield the two inputs of a node in either order; nothing where there is no node."""
        if node is not None:
            yield node.input[0], node.input[1]
            yield node.input[1], node.input[0]


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return a whole number among the attributes of a node."""
    return next((each.i for each in node.attribute if each.name == name), default)


def _inferred(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield inputs and inner tensors with the shapes that onnx infers; constants take part without their content.

    Where onnx cannot, as with operators that it does not know, there are those of the model.
    """
    graph = onnx.GraphProto(name="shapes", node=model.graph.node, input=model.graph.input, output=model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    for each in model.graph.initializer:
        if each.data_type == onnx.TensorProto.INT64:  # shapes and axes
            graph.initializer.append(each)
        else:
            graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)))
    light = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        light = onnx.shape_inference.infer_shapes(light)
    yield from (*light.graph.value_info, *light.graph.input)


def _sizes(value: onnx.ValueInfoProto) -> Sizes | None:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in kind.shape.dim)


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, and those that the nodes of the graphs within it read."""
    yield from node.input
    for inner in graphs_in(node):
        for each in inner.node:
            yield from names_read(each)


def graphs_in(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among the attributes of a node: bodies and branches."""
    for each in node.attribute:
        if each.type == onnx.AttributeProto.GRAPH:
            yield each.g
        yield from each.graphs
