"""Rename nodes and values after layer and operator, reproducibly.

What TensorFlow named in the scope of a layer keeps its name, by which a difference from Keras is found. tf2onnx numbers
what it makes with one counter a process, and puts names of TensorFlow's functions into others, which are numbered
likewise. Such a node is called after the operation of TensorFlow that it is part of, or else the layer, and its own
operator: `net_1/norm_1/Rsqrt.Reciprocal`, `net_1/dense_1/Cast`; what it gives, likewise, without the `:0` that tensors
of TensorFlow have; a constant after the first that reads it: `net_1/dense_1/Reshape.shape`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

import onnx

from .layer_scopes import scopes_of
from .traversal import all_graphs, graphs_in

_COUNTED = re.compile(r"(__\d+)+(?=(:\d+)?(/[a-z_]+)?$)")
_OUTERMOST = re.compile(r"^(Stateful)?PartitionedCall/")  # all that is traced is in one call
_PORT = re.compile(r":\d+$")
# of what stands in a graph twice: in front of a loop what is in its condition, which tf2onnx calls `cond__`
_CONDITION = "cond__"
_OF_OUTPUT = "_graph_outputs_Identity"


def rename(
    graph: onnx.GraphProto, layers: Collection[str] = (), weights: Collection[str] = (), functions: Iterable[str] = ()
) -> dict[str, str]:
    """Rename nodes and values in place, in bodies too; what a graph takes and gives keeps its name.

    Args:
        graph: Its nodes stand in an order that hangs on no name.
        layers: Names of layers, which scopes are called after.
        weights: Those of its inputs that may be renamed.
        functions: Names of functions of TensorFlow, which names begin with.

    Returns:
        The new names of weights that were renamed.
    """
    _tell_apart(graph)
    names = _Names(graph, layers, weights, functions).new
    for each in all_graphs(graph):
        for value in (*each.input, *each.output, *each.initializer, *each.value_info):
            value.name = names.get(value.name, value.name)
        for node in each.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
    return {name: names[name] for name in weights if name in names}


class _Names:
    """The new name of each value that gets one, `new`; nodes are renamed at once."""

    def __init__(
        self, graph: onnx.GraphProto, layers: Collection[str], weights: Collection[str], functions: Iterable[str]
    ) -> None:
        self._layers, self._weights = layers, weights
        self._prefixes = tuple(f"{name}_" for name in (*functions, _CONDITION))
        self._fixed = {value.name for value in (*graph.input, *graph.output) if value.name not in weights}
        self._constants = {*weights, *(each.name for inner in all_graphs(graph) for each in inner.initializer)}
        self._taken = {name for name in _names_in(graph) if self._is_kept(name)}
        self._nodes: set[str] = set()
        self.new: dict[str, str] = {}
        self._of_graph(graph, "")

    def _of_graph(self, graph: onnx.GraphProto, holder: str) -> None:
        graph.doc_string = ""
        for value in graph.input if holder else ():
            self._name(value.name, f"{holder}.{self._told(value.name).rpartition('/')[2]}")
        for node, scope in zip(graph.node, scopes_of(graph, self._layers, self._weights, holder), strict=True):
            node.name = self._of_node(node, scope)
            for index, name in enumerate(node.input):
                if name in self._constants:
                    self._name(name, f"{node.name}.{_argument(node.op_type, node.domain, index)}")
            for index, name in enumerate(node.output):
                self._name(name, f"{node.name}.{index}" if index else node.name)
            for attribute in node.attribute:
                for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    inner.name = f"{node.name}.{attribute.name}"
                    self._of_graph(inner, node.name)
        for value in graph.output if holder else ():  # a constant that nothing reads
            self._name(value.name, f"{holder}.{self._told(value.name).rpartition('/')[2]}")
        for value in (*graph.input, *graph.output, *graph.value_info):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param.startswith("unk__"):
                    axis.ClearField("dim_param")  # each has its own, which says nothing

    def _of_node(self, node: onnx.NodeProto, scope: str) -> str:
        known = [name for name in (node.name, *node.output[:1]) if "/" in name and name not in self._fixed]
        kept = next((name for name in known if self._is_kept(name)), None)
        told = self._told(node.name)
        if kept is not None:
            name = _PORT.sub("", kept)
        elif "/" not in told:
            name = f"{scope}/{node.op_type}" if scope else node.op_type
        else:
            name = told if re.search(rf"[/_]{node.op_type}(_\d+)?$", told) else f"{told}.{node.op_type}"
        return _unlike(name if kept is not None else _OUTERMOST.sub("", name), self._nodes)

    def _name(self, old: str, new: str) -> None:
        if old and old not in self.new and not self._is_kept(old):
            self.new[old] = _unlike(_OUTERMOST.sub("", new), self._taken)

    def _is_kept(self, name: str) -> bool:
        return name in self._fixed or self._told(name) == name

    def _told(self, name: str) -> str:
        """Return what of a name is no running number and no name of a function."""
        if name.startswith("Func/"):  # an argument of a function that was inlined, by its number
            return "argument"
        for prefix in self._prefixes:
            name = name.removeprefix(prefix)
        return _COUNTED.sub("", name).replace(_OF_OUTPUT, "")


def _unlike(name: str, taken: set[str]) -> str:
    """Return a name, with a number if it is taken, and take it."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


@cache
def _argument(op_type: str, domain: str, index: int) -> str:
    """Return what the standard calls an input of an operator."""
    try:
        inputs = onnx.defs.get_schema(op_type, domain=domain).inputs
    except onnx.defs.SchemaError:
        inputs = []
    return str(inputs[min(index, len(inputs) - 1)].name) if inputs else f"input_{index}"


def _names_in(graph: onnx.GraphProto) -> Iterator[str]:
    for each in all_graphs(graph):
        yield from (value.name for value in (*each.input, *each.output, *each.initializer))
        for node in each.node:
            yield from node.output


def _tell_apart(graph: onnx.GraphProto) -> None:
    """Let no two values of a graph and those in it have one name, as those in branches beside each other may."""
    made: set[str] = set()

    def own(name: str, names: dict[str, str]) -> str:
        if name:
            names[name] = name if name not in made else _unlike(f"{name}__2", made)
            made.add(names[name])
        return names.get(name, name)

    def within(each: onnx.GraphProto, around: Mapping[str, str]) -> None:
        names = dict(around)
        for value in (*each.input, *each.initializer):
            value.name = own(value.name, names)
        for node in each.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            for inner in graphs_in(node):
                within(inner, names)
            node.output[:] = [own(name, names) for name in node.output]
        for value in (*each.output, *each.value_info):
            value.name = names.get(value.name, value.name)

    within(graph, {})
