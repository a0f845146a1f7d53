"""Build ONNX functions from lazy values, each node in the innermost graph that reads it.

A node that only the branches of one `If` read is computed in these branches. A node that does not depend on the
variables of a loop is computed before the loop.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .lazy_values import Graph, Node, Value, op
from .traced_model import CONTRIB, FUNCTION_DOMAIN


def build_function(
    name: str, arguments: Mapping[str, Value], results: Mapping[str, Value], opset: int, *, for_device: bool = False
) -> onnx.FunctionProto:
    """Return the ONNX function that computes results, by their names, from arguments."""
    names = {value: argument for argument, value in (*arguments.items(), *results.items())}
    writer = _GraphWriter(names, itertools.count(len(names)), for_device=for_device)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    nodes = writer.write_nodes(results.values(), {*arguments.values()})
    return helper.make_function(FUNCTION_DOMAIN, name, [*arguments], [*results], nodes, imports)


class _GraphWriter:
    """Writer of the nodes of a graph and its subgraphs; it names their values."""

    def __init__(self, names: Mapping[Value, str], indices: Iterator[int], *, for_device: bool) -> None:
        self._names = dict(names)
        self._indices = indices
        self._for_device = for_device

    def write_nodes(self, results: Iterable[Value], outer_values: Collection[Value]) -> list[onnx.NodeProto]:
        """Return the nodes of a graph that computes results from values of outer graphs."""
        nodes = _select_nodes(results, outer_values)
        available = {*outer_values, *(value for node in nodes for value in node.results)}
        return [self._write_node(node, available) for node in nodes]

    def _write_node(self, node: Node, available: Collection[Value]) -> onnx.NodeProto:
        writer = self
        # For a device, a branch computes shape values itself, even if the outer graph has them: onnxruntime keeps shape
        # values of one graph on the host, but copies values that a branch captures to the device, and waits
        if self._for_device and node.op_type == "If":
            available = {value for value in available if not value.is_shape_value}
            names = {value: name for value, name in self._names.items() if not value.is_shape_value}
            writer = _GraphWriter(names, self._indices, for_device=True)
        graphs = {name: writer._write_graph(name, graph, available) for name, graph in node.graphs.items()}
        inputs, outputs = ([self._get_name(value) for value in values] for values in (node.inputs, node.outputs))
        return helper.make_node(node.op_type, inputs, outputs, domain=node.domain, **node.attributes, **graphs)

    def _write_graph(self, name: str, graph: Graph, available: Collection[Value]) -> onnx.GraphProto:
        available = {*available, *graph.parameters}
        # Parameters are named before an inner branch reads them
        parameters = [self._declare_parameter(value) for value in graph.parameters]
        # A graph cannot return values of an outer graph
        results = [op.Identity(value) if value in available else value for value in graph.results]
        nodes = self.write_nodes(results, available)
        # Types are declared, since onnx infers none for the results of onnxruntime's own operators
        types: list[tuple[int, list[None] | None]] = [
            (TensorProto.BOOL, []) if rank is None else (graph.elem_type, [None] * rank) for rank in graph.ranks
        ]
        declared = [
            helper.make_tensor_value_info(self._get_name(value), *type_and_shape)
            for value, type_and_shape in zip(results, types or [(graph.elem_type, None)] * len(results), strict=True)
        ]
        return helper.make_graph(nodes, name, parameters, declared)

    def _declare_parameter(self, value: Value) -> onnx.ValueInfoProto:
        scalar = getattr(value, "scalar", None)
        if scalar is None:
            return onnx.ValueInfoProto(name=self._get_name(value))
        return helper.make_tensor_value_info(self._get_name(value), scalar, [])

    def _get_name(self, value: Value | None) -> str:
        if value is None:
            return ""
        if value not in self._names:
            prefix = "step" if value.node is None else value.node.op_type
            self._names[value] = f"{prefix}_{next(self._indices)}"
        return self._names[value]


def nodes_in_graph(
    graph: onnx.GraphProto, inputs: Mapping[Value, str], results: Mapping[Value, str], prefix: str, scope: str
) -> list[onnx.NodeProto]:
    """Return the nodes that compute results from tensors of a graph, and append their constants to its initializers.

    `inputs` and `results` have names, and no `If` or loop computes a result. Names of other tensors and of constants
    begin with `prefix`, names of nodes with `scope`.
    """
    names = {**inputs, **results}
    nodes: list[onnx.NodeProto] = []
    for node in [node for node in _select_nodes(results, inputs) if node.op_type != "Constant"]:
        name = f"{node.op_type}_{len(nodes)}"
        tensors = []
        for index, value in enumerate(node.inputs):
            # Rewrite rules match initializers, not nodes `Constant`
            if value is not None and value.node is not None and value.node.op_type == "Constant":
                tensors.append(f"{prefix}/{name}/{index}")
                graph.initializer.append(numpy_helper.from_array(_to_array(value.node), tensors[-1]))
            else:
                tensors.append("" if value is None else names[value])
        outputs = [names.setdefault(value, f"{prefix}/{name}") for value in node.results]
        options = {"name": f"{scope}/{name}", "domain": node.domain or None, **node.attributes}
        nodes.append(helper.make_node(node.op_type, tensors, outputs, **options))
    return nodes


def _to_array(node: Node) -> np.ndarray:
    """Return the array of a node `Constant`: float32, int64 or the dtype of its tensor."""
    ((attribute, value),) = node.attributes.items()
    array = numpy_helper.to_array(value) if attribute == "value" else value
    return np.asarray(array, {"value_float": np.float32, "value_int": np.int64, "value_ints": np.int64}.get(attribute))


# Reader that stands for all readers in this graph, except its nodes `If`
_THIS_GRAPH = Node("this graph")


def _select_nodes(results: Iterable[Value], outer_values: Collection[Value]) -> list[Node]:
    """Return the nodes that belong to a graph and not to its subgraphs, in topological order."""
    # Nodes are visited in reverse topological order, so that all readers of a node are visited before the node. A node
    # belongs to this graph if the graph itself or more than one `If` reads the node, and if the node depends on no
    # variable of an inner loop. Else its only reader is an `If`, whose branches compute the node and read its inputs.
    # The body of a loop counts as the graph of the loop: a node that the body reads is computed before the loop, unless
    # the node depends on the loop's variables.
    readers: dict[Node, set[Node]] = {}
    _add_reader(readers, _list_producers(results, outer_values), _THIS_GRAPH)
    nodes = []
    for node in sorted(_find_reachable(results, outer_values), key=lambda node: node.creation_index, reverse=True):
        reader = readers[node].pop() if len(readers[node]) == 1 else _THIS_GRAPH
        is_local = reader is _THIS_GRAPH and node.loop_variables <= {*outer_values}
        if is_local:
            nodes.append(node)
        _add_reader(readers, _list_producers(node.inputs, outer_values), reader)
        inner_reader = node if is_local and node.op_type == "If" else reader
        for graph in node.graphs.values():
            _add_reader(readers, _list_producers(graph.results, outer_values), inner_reader)
    return nodes[::-1]


def _add_reader(readers: dict[Node, set[Node]], nodes: Iterable[Node], reader: Node) -> None:
    for node in nodes:
        readers.setdefault(node, set()).add(reader)


def _find_reachable(results: Iterable[Value], outer_values: Collection[Value]) -> list[Node]:
    """Return all nodes that values depend on, also through subgraphs."""
    nodes: dict[Node, None] = {}
    pending = [*_list_producers(results, outer_values)]
    while pending:
        node = pending.pop()
        if node not in nodes:
            nodes[node] = None
            pending += _list_producers(node.inputs, outer_values)
            for graph in node.graphs.values():
                pending += _list_producers(graph.results, outer_values)
    return [*nodes]


def _list_producers(values: Iterable[Value | None], outer_values: Collection[Value]) -> list[Node]:
    """Return the nodes that compute values, except values of outer graphs."""
    return [
        value.node for value in values if value is not None and value.node is not None and value not in outer_values
    ]
