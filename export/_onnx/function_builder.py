"""Build ONNX functions from lazy values, each node in the innermost graph that reads it.

A node that only the branches of one `If` read is computed in these branches. A node that does not depend on the step
of a loop is computed before the loop.

For a device, a branch computes sizes itself, also if they are known outside. onnxruntime keeps sizes that it computes
in a graph on the host; it copies sizes from another graph to the device, and waits for the copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx
from onnx import TensorProto, helper

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
    """Return the ONNX function that gives some values, by their names, for others."""
    names = {value: each for each, value in (*arguments.items(), *results.items())}
    writer = _Writer(names, itertools.count(len(names)), for_device=for_device)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
    nodes = writer.nodes(results.values(), {*arguments.values()})
    return helper.make_function(DOMAIN, name, [*arguments], [*results], nodes, imports)


class _Writer:
    """Gives names to values, and writes the graphs they are in."""

    def __init__(self, names: Mapping[Value, str], numbers: Iterator[int], *, for_device: bool) -> None:
        self._names, self._numbers, self._for_device = dict(names), numbers, for_device

    def nodes(self, results: Iterable[Value], around: Collection[Value]) -> list[onnx.NodeProto]:
        """Return the nodes of a graph that gives some values; those `around` are there already."""
        here = _made_here(results, around)
        made = {*around, *(value for node in here for value in node.results)}
        return [self._node(node, made) for node in here]

    def _node(self, node: Node, around: Collection[Value]) -> onnx.NodeProto:
        writer = self
        if self._for_device and node.op_type == "If":
            around = {value for value in around if not value.is_size}
            names = {value: name for value, name in self._names.items() if not value.is_size}
            writer = _Writer(names, self._numbers, for_device=True)
        graphs = {name: writer._graph(name, graph, around) for name, graph in node.graphs.items()}
        inputs, outputs = ([self._name(value) for value in values] for values in (node.inputs, node.outputs))
        return helper.make_node(node.op_type, inputs, outputs, domain=node.domain, **node.attributes, **graphs)

    def _graph(self, name: str, graph: Graph, around: Collection[Value]) -> onnx.GraphProto:
        around = {*around, *graph.parameters}
        parameters = [self._parameter(value) for value in graph.parameters]  # named before a branch within reads them
        results = [op.Identity(value) if value in around else value for value in graph.results]  # made within
        nodes = self.nodes(results, around)
        # types follow from what is around, but that of results of onnxruntime's own operators, which onnx cannot tell
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


def _made_here(results: Iterable[Value], around: Collection[Value]) -> list[Node]:
    """Return the nodes that belong into a graph itself, in their order, and not into a branch or a body in it."""
    readers: dict[Node, set[Node | None]] = {}  # the `If` of this graph that reads a node in its branches, else `None`

    def read(values: Iterable[Value | None], reader: Node | None) -> None:
        for node in _makers(values, around):
            readers.setdefault(node, set()).add(reader)

    here = []
    read(results, None)
    for node in sorted(_reachable(results, around), key=lambda node: node.created, reverse=True):
        reader = next(iter(readers[node])) if len(readers[node]) == 1 else None
        is_here = reader is None and node.steps <= {*around}
        if is_here:
            here.append(node)
        read(node.inputs, reader)
        for graph in node.graphs.values():
            read(graph.results, node if is_here and node.op_type == "If" else reader)
    return here[::-1]


def _reachable(results: Iterable[Value], around: Collection[Value]) -> list[Node]:
    """Return all nodes that some values depend on, those in branches and bodies too."""
    found: dict[Node, None] = {}
    pending = [*_makers(results, around)]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += _makers(node.inputs, around)
            for graph in node.graphs.values():
                pending += _makers(graph.results, around)
    return [*found]


def _makers(values: Iterable[Value | None], around: Collection[Value]) -> list[Node]:
    return [value.node for value in values if value is not None and value.node is not None and value not in around]
