"""Convert a model to mixed precision: float16 if an operator is safe in it, else float32.

The rule is that of autocast in training frameworks. Matrix products, convolutions and embedding tables run in float16.
Operators that only move elements, or combine them without amplifying errors, have the type of their inputs: float32 if
any input is float32. All others stay float32, as do operators with a constant that float16 cannot represent, such as
the fill value of a masked softmax, and products of scores (see `float16_rules.py`).

The converters of onnxruntime 1.31 (`onnxruntime.transformers.float16`) and onnxconverter-common 1.16 were tried first.
For each of six models with attention, they wrote models that onnxruntime refuses if an operator stays float32: two
nodes have the same name if two float32 operators read one value, values of a loop are cast outside of the loop, or the
inputs of a node have different types.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._onnx.graph_edits import filter_in_place
from .._onnx.graph_index import infer_shapes
from .._onnx.traced_model import CONTRIB, TracedModel, Weights
from .._onnx.traversal import iter_graphs, iter_nodes, iter_subgraphs, iter_used_names
from .._passes.loop_passthrough_state import remove_passthrough_state
from .float16_rules import PRODUCT_OPS, TABLE_OPS, TYPE_PRESERVING_OPS, find_score_products

FLOAT16, FLOAT32 = TensorProto.FLOAT16, TensorProto.FLOAT
_ATTENTION_OPS = {(CONTRIB, "MultiHeadAttention"), ("", "Attention")}
_MAX_FLOAT16, _MIN_NORMAL_FLOAT16 = float(np.finfo(np.float16).max), float(np.finfo(np.float16).tiny)


class Float16Model(NamedTuple):
    """A float16 model, and the names in the float32 model of the computed tensors that it has in float16."""

    traced: TracedModel
    tensors: set[str]


def convert_to_float16(
    traced: TracedModel, provider: str = "cpu", float32_tensors: Collection[str] = ()
) -> Float16Model:
    """Return a copy of a model that computes in mixed precision; inputs and outputs keep their types.

    Operators that read or return one of `float32_tensors` stay float32. On CUDA, attention computes in float16.
    """
    model = deepcopy(traced.model)
    _hoist_constants(model.graph)
    remove_passthrough_state(TracedModel(model))
    weights = dict(traced.weights)
    scope = _GraphConverter(model.graph, _infer_element_types(model, weights), None, weights, {*float32_tensors})
    if provider == "cuda":
        for function in model.functions:
            if "bias" not in function.input:  # a bias may be beyond the range of float16 at masked keys
                scope.convert_attention_calls(function)
    scope.convert()
    return Float16Model(replace(traced, model=model, weights=weights), scope.float16_tensors)


def _convert_attention(graph: onnx.FunctionProto | onnx.GraphProto) -> None:
    """Insert casts so that operators of attention compute in float16, where a GPU has its fastest kernels."""
    nodes = []
    for node in graph.node:
        for inner in iter_subgraphs(node):
            _convert_attention(inner)
        nodes.append(node)
        if (node.domain, node.op_type) in _ATTENTION_OPS:
            output = node.output[0]
            for index, name in enumerate(node.input[:3]):
                node.input[index] = f"{output}/{name}/float16"
                nodes.insert(-1, _make_cast(name, node.input[index], f"{node.name}/cast_{index}", FLOAT16))
            node.output[0] = f"{output}/float16"
            nodes.append(_make_cast(node.output[0], output, f"{node.name}/cast_back", FLOAT32))
    del graph.node[:]
    graph.node.extend(nodes)


def _make_cast(source: str, target: str, name: str, elem_type: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=name, to=elem_type)


def _hoist_constants(graph: onnx.GraphProto) -> None:
    """Replace every `Constant` node by an initializer, so that all constants are initializers."""
    for subgraph in iter_graphs(graph):
        for node in filter(_is_tensor, subgraph.node):
            tensor = subgraph.initializer.add()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
        filter_in_place(subgraph.node, lambda node: not _is_tensor(node))


def _is_tensor(node: onnx.NodeProto) -> bool:
    return bool(node.op_type == "Constant" and node.attribute[0].name == "value")


def _infer_element_types(model: onnx.ModelProto, weights: Weights) -> dict[str, int]:
    types: dict[str, int] = {}
    for graph in iter_graphs(infer_shapes(model, weights)):
        types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.HasField("tensor_type"):
                types[value.name] = value.type.tensor_type.elem_type
    return types


class _GraphConverter:
    """Conversion of a graph to mixed precision, with the names of its float tensors in both types."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        types: dict[str, int],
        outer: _GraphConverter | None,
        weights: dict[str, np.ndarray],
        float32_tensors: set[str],
    ) -> None:
        self._graph, self._types, self._outer = graph, types, outer
        self._weights, self._float32_tensors = weights, float32_tensors
        # Computed tensors that the result has in float16, shared by all graphs.
        self.float16_tensors: set[str] = set() if outer is None else outer.float16_tensors
        self._constants = {tensor.name: tensor for tensor in graph.initializer} | dict.fromkeys(weights)
        self._stored_types = {value.name: FLOAT32 for value in graph.input} | dict.fromkeys(self._constants, FLOAT32)
        self._names: dict[tuple[str, int], str] = {(name, FLOAT32): name for name in self._stored_types}
        self._outputs = {value.name for value in graph.output}
        self._nodes: list[onnx.NodeProto] = []
        self._scores = find_score_products(graph, self._constants)

    def convert(self) -> None:
        """Rewrite the graph in place; its inputs and outputs stay float32."""
        for node in self._graph.node:
            self._convert_node(node)
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        del self._graph.value_info[:]
        if self._outer is None:
            self._remove_unused_constants()

    def convert_attention_calls(self, function: onnx.FunctionProto) -> None:
        """Convert attention in a function to float16 if no call of the function reads a tensor that stays float32."""
        calls = [node for node in iter_nodes(self._graph) if node.op_type == function.name]
        # Only the inputs are checked: in front of attention, the function only moves elements of its inputs.
        inputs = {name for node in calls for name in node.input if self._is_float(name)}
        if inputs.isdisjoint(self._float32_tensors):
            _convert_attention(function)
            self.float16_tensors |= inputs - self._constants.keys()

    def _convert_node(self, original: onnx.NodeProto) -> None:
        node = deepcopy(original)
        elem_type = FLOAT16 if self._runs_in_float16(node) else FLOAT32
        for inner in iter_subgraphs(node):
            _GraphConverter(inner, self._types, self, {}, self._float32_tensors).convert()
        for index, name in enumerate(node.input):
            if self._is_float(name):
                node.input[index] = self._find_owner(name)._name_in_type(name, elem_type)
        casts = []
        for index, name in enumerate(node.output):
            self._stored_types[name] = elem_type
            self._names[name, elem_type] = name
            if elem_type == FLOAT16 and self._is_float(name):
                self.float16_tensors.add(name)
                if name in self._outputs:
                    node.output[index] = self._names[name, FLOAT16] = f"{name}/float16"
                    self._names[name, FLOAT32] = name
                    casts.append(_make_cast(node.output[index], name, f"{name}/to_float32", FLOAT32))
        self._nodes += [node, *casts]

    def _is_float(self, name: str) -> bool:
        return bool(self._types.get(name) == FLOAT32)

    def _find_owner(self, name: str) -> _GraphConverter:
        scope = self
        while name not in scope._stored_types and scope._outer is not None:
            scope = scope._outer
        return scope

    def _find_constant(self, name: str) -> np.ndarray | None:
        owner = self._find_owner(name)
        if name in owner._weights:
            return owner._weights[name]
        tensor = owner._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def _name_in_type(self, name: str, elem_type: int) -> str:
        """Return the name of a float tensor of this graph in an element type, and add a cast if it has none."""
        if (name, elem_type) not in self._names:
            cast = f"{name}/{'float16' if elem_type == FLOAT16 else 'float32'}"
            if name in self._weights:
                self._weights[cast] = self._weights[name].astype(np.float16)
            elif (constant := self._find_constant(name)) is not None:
                self._graph.initializer.append(numpy_helper.from_array(constant.astype(np.float16), cast))
            else:
                self.float16_tensors.add(name)
                source = self._names[name, self._stored_types[name]]
                self._nodes.append(_make_cast(source, cast, f"{cast}/cast", elem_type))
            self._names[name, elem_type] = cast
        return self._names[name, elem_type]

    def _runs_in_float16(self, node: onnx.NodeProto) -> bool:
        if node.domain not in ("", "ai.onnx") or any(name and name not in self._types for name in node.input):
            return False
        floats = [name for name in node.input if self._is_float(name)]
        constants = {name: self._find_constant(name) for name in floats}
        computed = [name for name in floats if constants[name] is None]
        if not self._float32_tensors.isdisjoint([*computed, *node.output]):
            return False
        if not floats or not all(_fits_float16(array) for array in constants.values() if array is not None):
            return False
        if node.op_type in TABLE_OPS and constants[floats[0]] is not None:
            return True
        if node.op_type in PRODUCT_OPS:
            return node.output[0] not in self._scores
        if node.op_type not in TYPE_PRESERVING_OPS:
            return False
        elem_types = {self._find_owner(name)._stored_types[name] for name in computed}
        is_square = node.op_type == "Mul" and len(floats) == 2 and floats[0] == floats[1]
        return not is_square and FLOAT16 in elem_types and FLOAT32 not in elem_types

    def _remove_unused_constants(self) -> None:
        names_in_use = set(iter_used_names(self._graph))
        filter_in_place(self._graph.initializer, lambda constant: constant.name in names_in_use)
        for name in self._weights.keys() - names_in_use:
            del self._weights[name]


def _fits_float16(constant: np.ndarray) -> bool:
    """Return True if float16 can represent a constant: all elements in range, and a scalar not subnormal."""
    max_abs = max(constant.max(initial=0), -constant.min(initial=0))  # `abs` would copy gigabytes
    if not max_abs <= _MAX_FLOAT16:  # too large, or NaN
        return False
    # A scalar such as an epsilon loses its digits as a subnormal number; a few small weights do not matter.
    return constant.size != 1 or bool(constant.item() == 0 or abs(constant.item()) >= _MIN_NORMAL_FLOAT16)
