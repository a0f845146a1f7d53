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
    """A graph to look for patterns in: that of a model, or a body or branch in it, from where what is around is seen.

    Attributes:
        graph: The graph.
        added: Constants that are needed beside those of the graph, by name.
    """

    def __init__(self, graph: onnx.GraphProto, outer: Nodes | None, values: Sequence[onnx.ValueInfoProto] = ()) -> None:
        """Read a graph.

        Args:
            graph: The graph.
            outer: The graph around it.
            values: Its tensors with their shapes, as far as they are known.
        """
        self.graph, self._outer = graph, outer
        self._makers = {name: node for node in graph.node for name in node.output}
        self._constants = {each.name: each for each in graph.initializer}
        self._sizes = {value.name: _sizes(value) for value in values}
        self._kinds: dict[str, int] = {value.name: value.type.tensor_type.elem_type for value in values}
        self._sizes |= {name: tuple(tensor.dims) for name, tensor in self._constants.items()}
        self._own = {*self._makers, *self._constants, *(value.name for value in graph.input)}
        self.added: dict[str, np.ndarray] = {}

    def _owner(self, name: str) -> Nodes:
        """Return the graph that a tensor belongs to: this one, or one around it."""
        return self if self._outer is None or name in self._own else self._outer._owner(name)

    def maker(self, name: str, *ops: str) -> onnx.NodeProto | None:
        """Return the node that makes a tensor, if it is one of these ops."""
        node = self._owner(name)._makers.get(name)
        return node if node is not None and node.op_type in ops else None

    def source_of(self, name: str, *ops: str) -> str:
        """Return the first input of the chain of such ops that makes a tensor; its own name where there is none."""
        while (node := self.maker(name, *ops)) is not None:
            name = node.input[0]
        return name

    def constant(self, name: str) -> np.ndarray | None:
        """Return a small constant: an initializer, and no weight that is kept out of the graph."""
        tensor = self._owner(name)._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def number(self, name: str) -> float | None:
        """Return the only number of a small constant, or None where there is no such constant or it has more."""
        array = self.constant(name)
        return float(array.item()) if array is not None and array.size == 1 else None

    def as_vector(self, name: str) -> str:
        """Return the name under which a constant has one axis."""
        array = self.constant(name)
        if array is None or array.ndim == 1:
            return name
        self._owner(name).added[f"{name}/vector"] = array.reshape(-1)
        return f"{name}/vector"

    def sizes(self, name: str) -> Sizes | None:
        """Return the shape of a tensor as far as it is known, or None where not even its rank is."""
        return self._owner(name)._sizes.get(name)

    def kind(self, name: str) -> int:
        """Return the element type of a tensor that is no constant, 0 where it is not known."""
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
        """Tell whether a tensor is a constant vector of float32 as long as the last axis; ones may stand before."""
        array, sizes = self.constant(name), self.sizes(source)
        if array is None or array.dtype != np.float32 or not sizes or array.ndim > len(sizes):
            return False
        return array.ndim > 0 and array.size == array.shape[-1] == sizes[-1]


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return a whole number among the attributes of a node."""
    return next((each.i for each in node.attribute if each.name == name), default)


def views(graph: onnx.GraphProto, known: onnx.GraphProto | None = None, outer: Nodes | None = None) -> Iterator[Nodes]:
    """Yield a graph and those in it, each after that around it.

    Args:
        graph: The graph.
        known: The same with what is known of shapes.
        outer: The graph around it.
    """
    known = graph if known is None else known
    nodes = Nodes(graph, outer, (*known.value_info, *known.input))
    yield nodes
    for node, same in zip(graph.node, known.node, strict=True):
        for inner, of_inner in zip(graphs_in(node), graphs_in(same), strict=True):
            yield from views(inner, of_inner, nodes)


def inferred(model: onnx.ModelProto, weights: Weights | None = None) -> onnx.GraphProto:
    """Return the graph with the shapes and types that onnx infers; constants take part without their content.

    Where onnx cannot, as with operators that it does not know, there are those of the model.

    Args:
        model: The model.
        weights: Those of it that are neither inputs nor initializers.
    """
    graph = onnx.GraphProto(name="inferred", node=model.graph.node, input=model.graph.input, output=model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    arrays = (weights or {}).items()
    left_out = {name: (helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in arrays}
    for each in model.graph.initializer:
        if each.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):  # shapes and axes
            graph.initializer.append(each)
        else:
            left_out[each.name] = each.data_type, tuple(each.dims)
    graph.input.extend(helper.make_tensor_value_info(name, *what) for name, what in left_out.items())
    light = helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        light = onnx.shape_inference.infer_shapes(light, data_prop=True)
    return light.graph


def _sizes(value: onnx.ValueInfoProto) -> Sizes | None:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in kind.shape.dim)
