"""Build ONNX functions from lazy values, each node in the innermost graph that reads it.

A node that only the branches of one `If` read is computed in these branches. A node that does not depend on the
variables of a loop is computed before the loop.

For a device, a branch computes sizes itself, also if the outer graph has them: onnxruntime keeps sizes that a graph
computes on the host, but copies sizes of another graph to the device, and waits for the copy.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .lazy_values import Graph, Node, Value, op
from .traced_model import CONTRIB, DOMAIN


def build_function(
    name: str,
    arguments: Mapping[str, Value],
    results: Mapping[str, Value],
    opset: int,
    *,
    for_device: bool = False,
) -> onnx.FunctionProto:
    """Return the ONNX function that computes results, by their names, from arguments."""
    names = {value: each for each, value in (*arguments.items(), *results.items())}
    writer = _Writer(names, itertools.count(len(names)), for_device=for_device)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    nodes = writer.nodes(results.values(), {*arguments.values()})
    return helper.make_function(DOMAIN, name, [*arguments], [*results], nodes, imports)


class _Writer:
    """Names values, and writes the graphs that compute them."""

    def __init__(self, names: Mapping[Value, str], numbers: Iterator[int], *, for_device: bool) -> None:
        self._names = dict(names)
        self._numbers = numbers
        self._for_device = for_device

    def nodes(self, results: Iterable[Value], outer_values: Collection[Value]) -> list[onnx.NodeProto]:
        """Return the nodes of a graph that computes results from values of outer graphs."""
        nodes = _nodes_of_graph(results, outer_values)
        available = {*outer_values, *(value for node in nodes for value in node.results)}
        return [self._node(node, available) for node in nodes]

    def _node(self, node: Node, available: Collection[Value]) -> onnx.NodeProto:
        writer = self
        if self._for_device and node.op_type == "If":
            available = {value for value in available if not value.is_size}
            names = {value: name for value, name in self._names.items() if not value.is_size}
            writer = _Writer(names, self._numbers, for_device=True)
        graphs = {name: writer._graph(name, graph, available) for name, graph in node.graphs.items()}
        inputs, outputs = ([self._name(value) for value in values] for values in (node.inputs, node.outputs))
        return helper.make_node(node.op_type, inputs, outputs, domain=node.domain, **node.attributes, **graphs)

    def _graph(self, name: str, graph: Graph, available: Collection[Value]) -> onnx.GraphProto:
        available = {*available, *graph.parameters}
        parameters = [self._parameter(value) for value in graph.parameters]  # named before an inner branch reads them
        # A graph cannot return values of an outer graph
        results = [op.Identity(value) if value in available else value for value in graph.results]
        nodes = self.nodes(results, available)
        # onnx infers types, but not those of the results of onnxruntime's own operators
        types: list[tuple[int, list[None] | None]] = [
            (TensorProto.BOOL, []) if axes is None else (graph.kind, [None] * axes) for axes in graph.axes
        ]
        declared = [
            helper.make_tensor_value_info(self._name(value), *type_and_shape)
            for value, type_and_shape in zip(results, types or [(graph.kind, None)] * len(results), strict=True)
        ]
        return helper.make_graph(nodes, name, parameters, declared)

    def _parameter(self, value: Value) -> onnx.ValueInfoProto:
        scalar = getattr(value, "scalar", None)
        if scalar is None:
            return onnx.ValueInfoProto(name=self._name(value))
        return helper.make_tensor_value_info(self._name(value), scalar, [])

    def _name(self, value: Value | None) -> str:
        if value is None:
            return ""
        if value not in self._names:
            kind = "step" if value.node is None else value.node.op_type
            self._names[value] = f"{kind}_{next(self._numbers)}"
        return self._names[value]


def nodes_in_graph(
    graph: onnx.GraphProto, inputs: Mapping[Value, str], results: Mapping[Value, str], prefix: str, scope: str
) -> list[onnx.NodeProto]:
    """Return the nodes that compute results from tensors of a graph, and append their constants to its initializers.

    Args:
        graph: The graph, without branches and loops of lazy values.
        inputs: The names of tensors of the graph.
        results: The names of the results.
        prefix: The prefix of the names of other tensors and of constants.
        scope: The prefix of the names of the nodes.
    """
    names = {**inputs, **results}
    nodes: list[onnx.NodeProto] = []
    for node in [node for node in _nodes_of_graph(results, inputs) if node.op_type != "Constant"]:
        name = f"{node.op_type}_{len(nodes)}"
        tensors = []
        for index, value in enumerate(node.inputs):
            if value is not None and value.node is not None and value.node.op_type == "Constant":
                tensors.append(f"{prefix}/{name}/{index}")
                graph.initializer.append(numpy_helper.from_array(_constant_array(value.node), tensors[-1]))
            else:
                tensors.append("" if value is None else names[value])
        outputs = [names.setdefault(value, f"{prefix}/{name}") for value in node.results]
        options = {"name": f"{scope}/{name}", "domain": node.domain or None, **node.attributes}
        nodes.append(helper.make_node(node.op_type, tensors, outputs, **options))
    return nodes


def _constant_array(node: Node) -> np.ndarray:
    ((attribute, value),) = node.attributes.items()
    array = numpy_helper.to_array(value) if attribute == "value" else value
    return np.asarray(array, {"value_float": np.float32, "value_int": np.int64, "value_ints": np.int64}.get(attribute))


_THIS_GRAPH = Node("this graph")  # the reader of a node that is not an `If` of this graph


def _nodes_of_graph(results: Iterable[Value], outer_values: Collection[Value]) -> list[Node]:
    """Return the nodes of a graph itself, without those of its subgraphs, in topological order.

    Nodes are visited in reverse topological order, so that all readers of a node are known before the node. A node
    belongs to this graph if the graph itself or more than one `If` reads the node, and if the node depends on no
    variable of an inner loop. Else its only reader is an `If`, whose branches compute the node and read its inputs. The
    body of a loop counts as the graph of the loop: a node that the body reads is computed before the loop, unless the
    node depends on the loop's variables.
    """
    readers: dict[Node, set[Node]] = {}
    _add_reader(readers, _producers(results, outer_values), _THIS_GRAPH)
    nodes = []
    for node in sorted(_reachable(results, outer_values), key=lambda node: node.created, reverse=True):
        reader = readers[node].pop() if len(readers[node]) == 1 else _THIS_GRAPH
        is_of_graph = reader is _THIS_GRAPH and node.steps <= {*outer_values}
        if is_of_graph:
            nodes.append(node)
        _add_reader(readers, _producers(node.inputs, outer_values), reader)
        inner_reader = node if is_of_graph and node.op_type == "If" else reader
        for graph in node.graphs.values():
            _add_reader(readers, _producers(graph.results, outer_values), inner_reader)
    return nodes[::-1]


def _add_reader(readers: dict[Node, set[Node]], nodes: Iterable[Node], reader: Node) -> None:
    for node in nodes:
        readers.setdefault(node, set()).add(reader)


def _reachable(results: Iterable[Value], outer_values: Collection[Value]) -> list[Node]:
    """Return all nodes that values depend on, those in subgraphs too."""
    nodes: dict[Node, None] = {}
    pending = [*_producers(results, outer_values)]
    while pending:
        node = pending.pop()
        if node not in nodes:
            nodes[node] = None
            pending += _producers(node.inputs, outer_values)
            for graph in node.graphs.values():
                pending += _producers(graph.results, outer_values)
    return [*nodes]


def _producers(values: Iterable[Value | None], outer_values: Collection[Value]) -> list[Node]:
    """Return the nodes that compute values, except values of outer graphs."""
    return [
        value.node for value in values if value is not None and value.node is not None and value not in outer_values
    ]
