"""Rename nodes and values after layer and operator, reproducibly."""

# TensorFlow's names in the scope of a layer stay, because differences from Keras are reported by these names. tf2onnx
# numbers nodes with one counter per process, and adds prefixes with names of TensorFlow functions, which have numbers
# of the process too. Such a node is named after its TensorFlow operation, or else its layer, and its operator:
# `net_1/norm_1/Rsqrt.Reciprocal`, `net_1/dense_1/Cast`. Its first output gets the same name, without TensorFlow's `:0`.
# A constant is named after its first consumer and the input: `net_1/dense_1/Reshape.shape`.

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache

import onnx

from .._onnx.layer_scopes import assign_layers
from .._onnx.traced_model import TracedModel, Weights
from .._onnx.traversal import iter_graphs, iter_subgraphs

_NODE_NUMBERS = re.compile(r"(__\d+)+(?=(:\d+)?(/[a-z_]+)?$)")
_OUTER_CALL = re.compile(r"^(Stateful)?PartitionedCall/")  # the traced model is one call
_PORT = re.compile(r":\d+$")
_CONDITION_PREFIX = "cond__"  # tf2onnx's copy of a loop condition before the loop
_OUTPUT_SUFFIX = "_graph_outputs_Identity"


def rename(traced: TracedModel, layers: Collection[str] = (), functions: Iterable[str] = ()) -> bool:
    """Rename sorted nodes, values and weights of a graph and its subgraphs, except inputs and outputs.

    Name scopes contain names of `layers`; names of TensorFlow's `functions` are prefixes to remove.
    """
    graph = traced.model.graph
    serialized = graph.SerializeToString(deterministic=True)
    unique = UniqueNames()
    _make_unique(graph, {}, unique)
    names = _NameTable(graph, layers, traced.weights, functions, unique.used_names).choose_names(graph)
    for inner in iter_graphs(graph):
        for value in (*inner.input, *inner.output, *inner.initializer, *inner.value_info):
            value.name = names.get(value.name, value.name)
        for node in inner.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
    traced.weights = {names.get(name, name): array for name, array in traced.weights.items()}
    return bool(graph.SerializeToString(deterministic=True) != serialized)


class UniqueNames:
    """Set of used names."""

    def __init__(self, used_names: Iterable[str] = ()) -> None:
        self.used_names = {*used_names}

    def reserve(self, name: str, stem_if_used: str = "") -> str:
        """Return an unused name and add it: `name`, else `stem_if_used` or `name`, with a number if needed."""
        stem = stem_if_used if stem_if_used and name in self.used_names else name
        candidates = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
        unused_name = next(candidate for candidate in candidates if candidate not in self.used_names)
        self.used_names.add(unused_name)
        return unused_name


class _NameTable:
    """Table of new names for a graph whose names are unique."""

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
        self._prefixes = tuple(f"{name}_" for name in (*functions, _CONDITION_PREFIX))
        self._fixed_names = {value.name for value in (*graph.input, *graph.output) if value.name not in weights}
        self._constants = {*weights, *(tensor.name for inner in iter_graphs(graph) for tensor in inner.initializer)}
        self._value_names = UniqueNames(filter(self._keeps_name, names))
        self._node_names = UniqueNames()
        self._new_names: dict[str, str] = {}

    def choose_names(self, graph: onnx.GraphProto, parent_node: str = "") -> dict[str, str]:
        """Return the new names of values by old name, and rename the nodes; `parent_node` owns the subgraph."""
        graph.doc_string = ""
        self._name_parameters(graph.input, parent_node)
        for node, scope in zip(graph.node, assign_layers(graph, self._layers, self._weights), strict=True):
            node.name = self._choose_node_name(node, scope or parent_node)
            for index, name in enumerate(node.input):
                if name in self._constants:
                    self._rename_value(name, f"{node.name}.{_get_input_name(node.op_type, node.domain, index)}")
            for index, name in enumerate(node.output):
                self._rename_value(name, f"{node.name}.{index}" if index else node.name)
            for attribute in node.attribute:
                for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    inner.name = f"{node.name}.{attribute.name}"
                    self.choose_names(inner, node.name)
        self._name_parameters(graph.output, parent_node)  # constant outputs without consumers
        for value in (*graph.input, *graph.output, *graph.value_info):
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param.startswith("unk__"):
                    axis.ClearField("dim_param")  # tf2onnx names every unknown dim differently
        return self._new_names

    def _name_parameters(self, values: Iterable[onnx.ValueInfoProto], parent_node: str) -> None:
        for value in values if parent_node else ():
            self._rename_value(value.name, f"{parent_node}.{self._strip_numbers(value.name).rpartition('/')[2]}")

    def _choose_node_name(self, node: onnx.NodeProto, scope: str) -> str:
        names = [name for name in (node.name, *node.output[:1]) if "/" in name and name not in self._fixed_names]
        fixed_name = next((name for name in names if self._keeps_name(name)), None)
        if fixed_name is not None:
            return self._node_names.reserve(_PORT.sub("", fixed_name))
        stem = self._strip_numbers(node.name)
        if "/" not in stem:
            name = f"{scope}/{node.op_type}" if scope else node.op_type
        else:
            name = stem if re.search(rf"[/_]{node.op_type}(_\d+)?$", stem) else f"{stem}.{node.op_type}"
        return self._node_names.reserve(_OUTER_CALL.sub("", name))

    def _rename_value(self, old: str, new: str) -> None:
        if old and old not in self._new_names and not self._keeps_name(old):
            self._new_names[old] = self._value_names.reserve(_OUTER_CALL.sub("", new))

    def _keeps_name(self, name: str) -> bool:
        return name in self._fixed_names or self._strip_numbers(name) == name

    def _strip_numbers(self, name: str) -> str:
        """Return a name without running numbers and without prefixes of TensorFlow functions."""
        if name.startswith("Func/"):  # a numbered argument of an inlined function
            return "argument"
        for prefix in self._prefixes:
            name = name.removeprefix(prefix)
        return _NODE_NUMBERS.sub("", name).replace(_OUTPUT_SUFFIX, "")


@cache
def _get_input_name(op_type: str, domain: str, index: int) -> str:
    try:
        inputs = onnx.defs.get_schema(op_type, domain=domain).inputs
    except onnx.defs.SchemaError:
        inputs = []
    return str(inputs[min(index, len(inputs) - 1)].name) if inputs else f"input_{index}"


def _make_unique(graph: onnx.GraphProto, outer_names: Mapping[str, str], unique: UniqueNames) -> None:
    """Make the names of values unique in a graph and its subgraphs; parallel branches may share names before."""
    names = dict(outer_names)
    for value in (*graph.input, *graph.initializer):
        names[value.name] = unique.reserve(value.name, f"{value.name}__2")
        value.name = names[value.name]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for inner in iter_subgraphs(node):
            _make_unique(inner, names, unique)
        names |= {name: unique.reserve(name, f"{name}__2") for name in node.output if name}
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
