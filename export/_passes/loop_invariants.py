"""Hoist loop invariants to before the loop, also out of attention functions."""

# A node is invariant if the body computes none of its inputs. Loops are visited innermost first, so that a node may
# leave several loops. Nodes with subgraphs, random operators and results of the body stay. A step of a decoder attends
# to a constant memory with constant masks: the attention call reads invariant and varying values, so its function is
# split. `NAME_before_loop` has the nodes that depend on invariant inputs only and runs once; `NAME` gets their results
# as further inputs. A function with several calls is not split, because inputs may be invariant in one of them only.

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import onnx
from onnx import helper

from .._onnx.graph_edits import filter_in_place, replace_items
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_graphs, iter_input_names, iter_nodes, iter_subgraphs


def hoist_invariants(traced: TracedModel) -> bool:
    """Move nodes that do not depend on values of the iteration from the bodies of loops to before the loops."""
    return _Hoisting(traced.model).hoist_from(traced.model.graph)


class _SplitFunction(NamedTuple):
    """A function in two parts; `carried_values` are results of the first part that the second part reads."""

    invariant_nodes: list[onnx.NodeProto]
    varying_nodes: list[onnx.NodeProto]
    carried_values: list[str]


class _Hoisting:
    """Mover of nodes from loop bodies to outer graphs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._functions = {(function.domain, function.name): function for function in model.functions}
        self._num_calls = Counter((node.domain, node.op_type) for node in iter_nodes(model.graph))
        graphs = [*iter_graphs(model.graph)]
        names = Counter(name for graph in graphs for node in graph.node for name in node.output)
        names.update(tensor.name for graph in graphs for tensor in graph.initializer)
        self._repeated_names = {name for name, count in names.items() if count > 1}  # in parallel bodies

    def hoist_from(self, graph: onnx.GraphProto) -> bool:
        """Hoist out of the loops of a graph, the innermost first; return True if any node moved."""
        nodes: list[onnx.NodeProto] = []
        is_changed = False
        for node in graph.node:
            for inner in iter_subgraphs(node):
                is_changed |= self.hoist_from(inner)
                if node.op_type == "Loop":
                    nodes += self._hoist_nodes(graph, inner)
            nodes.append(node)
        is_changed |= len(nodes) > len(graph.node)
        replace_items(graph.node, nodes)
        return is_changed

    def _hoist_nodes(self, graph: onnx.GraphProto, body: onnx.GraphProto) -> list[onnx.NodeProto]:
        """Remove invariant nodes from a body, and return the nodes to insert before the loop."""
        varying_names = {value.name for value in body.input} | {name for node in body.node for name in node.output}
        varying_names |= self._repeated_names
        results = {value.name for value in body.output}
        hoisted: list[onnx.NodeProto] = []
        remaining: list[onnx.NodeProto] = []
        for node in body.node:
            if self._is_invariant(node, varying_names, results):
                varying_names.difference_update(node.output)
                hoisted.append(node)
            else:
                hoisted += self._split_call(node, varying_names)
                remaining.append(node)
        replace_items(body.node, remaining)
        _move(body.value_info, graph.value_info, {name for node in hoisted for name in node.output})
        _move(body.initializer, graph.initializer, {name for node in hoisted for name in node.input})
        return hoisted

    def _is_invariant(self, node: onnx.NodeProto, varying_names: Collection[str], results: Collection[str]) -> bool:
        return (
            not any(iter_subgraphs(node))
            and not node.op_type.startswith("Random")
            and not any(name in varying_names for name in node.input)
            and not any(name in results or name in self._repeated_names for name in node.output)
        )

    def _split_call(self, node: onnx.NodeProto, varying_names: Collection[str]) -> list[onnx.NodeProto]:
        """Split the function that a node calls, and return the call of its first part, or an empty list."""
        function = self._functions.get((node.domain, node.op_type))
        if function is None or self._num_calls[node.domain, node.op_type] > 1:
            return []
        arguments = dict(zip(function.input, node.input, strict=False))
        invariant = {name for name, argument in arguments.items() if argument not in varying_names}
        parts = _split_function(function, invariant)
        if not parts.carried_values:
            return []
        invariant_inputs = [name for name in arguments if any(name in node.input for node in parts.invariant_nodes)]
        make = partial(helper.make_function, function.domain, opset_imports=function.opset_import)
        first = make(f"{function.name}_before_loop", invariant_inputs, parts.carried_values, parts.invariant_nodes)
        second = make(function.name, [*function.input, *parts.carried_values], function.output, parts.varying_nodes)
        results = [f"{node.output[0]}/before_loop/{name}" for name in parts.carried_values]
        omitted_inputs = [""] * (len(function.input) - len(node.input))
        node.input.extend([*omitted_inputs, *results])
        self._model.functions.append(first)
        function.CopyFrom(second)
        inputs = [arguments[name] for name in invariant_inputs]
        return [helper.make_node(first.name, inputs, results, f"{node.name}/before_loop", domain=node.domain)]


def _split_function(function: onnx.FunctionProto, invariant_inputs: Collection[str]) -> _SplitFunction:
    """Split a function into the nodes that depend on `invariant_inputs` only, and the other nodes."""
    constants = [node for node in function.node if node.op_type == "Constant"]
    invariant_names = {*invariant_inputs, "", *(node.output[0] for node in constants)}
    invariant_nodes: list[onnx.NodeProto] = []
    varying_nodes: list[onnx.NodeProto] = []
    for node in function.node:
        if node.op_type == "Constant":
            continue
        is_result = not {*function.output}.isdisjoint(node.output)
        if invariant_names.issuperset(node.input) and not any(iter_subgraphs(node)) and not is_result:
            invariant_names.update(node.output)
            invariant_nodes.append(node)
        else:
            varying_nodes.append(node)
    inputs = {name for node in varying_nodes for name in iter_input_names(node)}
    carried_values = [name for node in invariant_nodes for name in node.output if name in inputs]
    invariant_part = _prepend_constants(invariant_nodes, constants)
    return _SplitFunction(invariant_part, _prepend_constants(varying_nodes, constants), carried_values)


def _prepend_constants(nodes: Sequence[onnx.NodeProto], constants: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes with a `Constant` node in front for each constant that they read."""
    inputs = {name for node in nodes for name in iter_input_names(node)}
    return [*(node for node in constants if node.output[0] in inputs), *nodes]


def _move(source: Any, target: Any, names: Collection[str]) -> None:
    """Move the items with `names` from one list of a graph to another."""
    target.extend(item for item in source if item.name in names)
    filter_in_place(source, lambda item: item.name not in names)
