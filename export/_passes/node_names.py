"""Rename nodes and values after layer and operator, reproducibly.

Names that TensorFlow gave in the scope of a layer stay, because differences from Keras are reported by these names.
tf2onnx numbers its nodes with one counter for the process, and prefixes names with those of TensorFlow's functions,
which are numbered likewise. Such a node gets the name of the TensorFlow operation that it is part of, or else of the
layer, and its operator: `net_1/norm_1/Rsqrt.Reciprocal`, `net_1/dense_1/Cast`. Its output gets the same name, without
the `:0` of TensorFlow's tensors; a constant is named after the first node that reads it: `net_1/dense_1/Reshape.shape`.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache

import onnx

from .._onnx.layer_scopes import layer_scopes
from .._onnx.traced_model import Traced, Weights
from .._onnx.traversal import all_graphs, graphs_in

_COUNTED = re.compile(r"(__\d+)+(?=(:\d+)?(/[a-z_]+)?$)")
_OUTERMOST = re.compile(r"^(Stateful)?PartitionedCall/")  # the traced model is one call
_PORT = re.compile(r":\d+$")
_CONDITION = "cond__"  # tf2onnx's prefix of the copy of a loop's condition in front of the loop
_OF_OUTPUT = "_graph_outputs_Identity"


def rename(traced: Traced, layers: Collection[str] = (), functions: Iterable[str] = ()) -> bool:
    """Rename sorted nodes, values and weights, as a pass, in bodies too; inputs and outputs keep their names.

    Scopes are named after `layers`, and prefixes of names after `functions` of TensorFlow.
    """
    graph = traced.model.graph
    before = graph.SerializeToString(deterministic=True)
    unique = UniqueNames()
    _make_unique(graph, {}, unique)
    names = _Renaming(graph, layers, traced.weights, functions, unique.taken).new_names(graph)
    for inner in all_graphs(graph):
        for value in (*inner.input, *inner.output, *inner.initializer, *inner.value_info):
            value.name = names.get(value.name, value.name)
        for node in inner.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
    traced.weights = {names.get(name, name): array for name, array in traced.weights.items()}
    return bool(graph.SerializeToString(deterministic=True) != before)


class UniqueNames:
    """Names that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*taken}

    def take(self, name: str, repeated: str = "") -> str:
        """Take a name, with a number if it is taken, and return it; a repeated name may have another stem."""
        stem = repeated if repeated and name in self.taken else name
        candidates = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        free = next(candidate for candidate in candidates if candidate not in self.taken)
        self.taken.add(free)
        return free


class _Renaming:
    """The new names of a graph with unique names."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        layers: Collection[str],
        weights: Weights,
        functions: Iterable[str],
        names: set[str],
    ) -> None:
        self._layers = layers
        self._weights = weights
        self._prefixes = tuple(f"{name}_" for name in (*functions, _CONDITION))
        self._fixed = {value.name for value in (*graph.input, *graph.output) if value.name not in weights}
        self._constants = {*weights, *(tensor.name for inner in all_graphs(graph) for tensor in inner.initializer)}
        self._values = UniqueNames(filter(self._is_fixed, names))
        self._nodes = UniqueNames()
        self._new: dict[str, str] = {}

    def new_names(self, graph: onnx.GraphProto, holder: str = "") -> dict[str, str]:
        """Return the new names of values by old name, and rename the nodes; `holder` is the node of a subgraph."""
        graph.doc_string = ""
        self._name_parameters(graph.input, holder)
        for node, scope in zip(graph.node, layer_scopes(graph, self._layers, self._weights), strict=True):
            node.name = self._node_name(node, scope or holder)
            for index, name in enumerate(node.input):
                if name in self._constants:
                    self._name(name, f"{node.name}.{_argument(node.op_type, node.domain, index)}")
            for index, name in enumerate(node.output):
                self._name(name, f"{node.name}.{index}" if index else node.name)
            for attribute in node.attribute:
                for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    inner.name = f"{node.name}.{attribute.name}"
                    self.new_names(inner, node.name)
        self._name_parameters(graph.output, holder)  # outputs that are constants which no node reads
        for value in (*graph.input, *graph.output, *graph.value_info):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param.startswith("unk__"):
                    axis.ClearField("dim_param")  # tf2onnx's names are different for each axis
        return self._new

    def _name_parameters(self, values: Iterable[onnx.ValueInfoProto], holder: str) -> None:
        for value in values if holder else ():
            self._name(value.name, f"{holder}.{self._stem(value.name).rpartition('/')[2]}")

    def _node_name(self, node: onnx.NodeProto, scope: str) -> str:
        names = [name for name in (node.name, *node.output[:1]) if "/" in name and name not in self._fixed]
        fixed = next((name for name in names if self._is_fixed(name)), None)
        if fixed is not None:
            return self._nodes.take(_PORT.sub("", fixed))
        stem = self._stem(node.name)
        if "/" not in stem:
            name = f"{scope}/{node.op_type}" if scope else node.op_type
        else:
            name = stem if re.search(rf"[/_]{node.op_type}(_\d+)?$", stem) else f"{stem}.{node.op_type}"
        return self._nodes.take(_OUTERMOST.sub("", name))

    def _name(self, old: str, new: str) -> None:
        if old and old not in self._new and not self._is_fixed(old):
            self._new[old] = self._values.take(_OUTERMOST.sub("", new))

    def _is_fixed(self, name: str) -> bool:
        return name in self._fixed or self._stem(name) == name

    def _stem(self, name: str) -> str:
        """Return a name without running numbers and names of functions."""
        if name.startswith("Func/"):  # a numbered argument of a function that was inlined
            return "argument"
        for prefix in self._prefixes:
            name = name.removeprefix(prefix)
        return _COUNTED.sub("", name).replace(_OF_OUTPUT, "")


@cache
def _argument(op_type: str, domain: str, index: int) -> str:
    """Return the name of an input of an operator in the ONNX standard."""
    try:
        inputs = onnx.defs.get_schema(op_type, domain=domain).inputs
    except onnx.defs.SchemaError:
        inputs = []
    return str(inputs[min(index, len(inputs) - 1)].name) if inputs else f"input_{index}"


def _make_unique(graph: onnx.GraphProto, outer_names: Mapping[str, str], unique: UniqueNames) -> None:
    """Give different names to all values of a graph and its subgraphs; parallel branches may share names."""
    names = dict(outer_names)
    for value in (*graph.input, *graph.initializer):
        names[value.name] = unique.take(value.name, f"{value.name}__2")
        value.name = names[value.name]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for inner in graphs_in(node):
            _make_unique(inner, names, unique)
        names |= {name: unique.take(name, f"{name}__2") for name in node.output if name}
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
