"""Hoist loop invariants to before the loop, also out of attention functions.

The step of a decoder attends to a memory that stays, behind masks that stay. A call of attention in the body reads
values that stay and values that change: its function is split into two, the first of which runs before the loop.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import onnx
from onnx import helper

from .._onnx.graph_edits import keep, refill
from .._onnx.traced_model import Traced
from .._onnx.traversal import all_graphs, all_nodes, graphs_in, names_read


def hoist_invariants(traced: Traced) -> bool:
    """Move, as a pass, nodes out of the bodies of loops that read nothing which is computed there."""
    return _Hoisting(traced.model).hoist_from(traced.model.graph)


class _SplitFunction(NamedTuple):
    """A function in two parts; `crossing` are the results of the first part that the second reads."""

    invariant_nodes: list[onnx.NodeProto]
    varying_nodes: list[onnx.NodeProto]
    carried_values: list[str]


class _Hoisting:
    """Moves nodes from bodies to the graphs around them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._functions = {(function.domain, function.name): function for function in model.functions}
        self._num_calls = Counter((node.domain, node.op_type) for node in all_nodes(model.graph))
        graphs = [*all_graphs(model.graph)]
        names = Counter(name for graph in graphs for node in graph.node for name in node.output)
        names.update(tensor.name for graph in graphs for tensor in graph.initializer)
        self._repeated_names = {name for name, count in names.items() if count > 1}  # in parallel bodies

    def hoist_from(self, graph: onnx.GraphProto) -> bool:
        """Hoist out of the loops of a graph, the innermost first, and return whether any node moved."""
        nodes: list[onnx.NodeProto] = []
        is_changed = False
        for node in graph.node:
            for inner in graphs_in(node):
                is_changed |= self.hoist_from(inner)
                if node.op_type == "Loop":
                    nodes += self._hoist_nodes(graph, inner)
            nodes.append(node)
        is_changed |= len(nodes) > len(graph.node)
        refill(graph.node, nodes)
        return is_changed

    def _hoist_nodes(self, graph: onnx.GraphProto, body: onnx.GraphProto) -> list[onnx.NodeProto]:
        """Remove invariant nodes from a body, and return the nodes that go before the loop."""
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
        refill(body.node, remaining)
        _move(body.value_info, graph.value_info, {name for node in hoisted for name in node.output})
        _move(body.initializer, graph.initializer, {name for node in hoisted for name in node.input})
        return hoisted

    def _is_invariant(self, node: onnx.NodeProto, varying_names: Collection[str], results: Collection[str]) -> bool:
        return (
            not any(graphs_in(node))
            and not node.op_type.startswith("Random")
            and not any(name in varying_names for name in node.input)
            and not any(name in results or name in self._repeated_names for name in node.output)
        )

    def _split_call(self, node: onnx.NodeProto, varying_names: Collection[str]) -> list[onnx.NodeProto]:
        """Split the function that a node calls, and return the call of its first part; empty without such a part.

        The second part replaces the function, with the results of the first part as further inputs at the end.
        """
        function = self._functions.get((node.domain, node.op_type))
        if function is None or self._num_calls[node.domain, node.op_type] > 1:
            return []
        arguments = dict(zip(function.input, node.input, strict=False))
        parts = _split_function(
            function, {name for name, argument in arguments.items() if argument not in varying_names}
        )
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
    """Split a function into the nodes that depend on some of its inputs only, and the others."""
    constants = [node for node in function.node if node.op_type == "Constant"]
    invariant_names = {*invariant_inputs, "", *(node.output[0] for node in constants)}
    invariant_nodes: list[onnx.NodeProto] = []
    varying_nodes: list[onnx.NodeProto] = []
    for node in function.node:
        if node.op_type == "Constant":
            continue
        is_result = not {*function.output}.isdisjoint(node.output)
        if invariant_names.issuperset(node.input) and not any(graphs_in(node)) and not is_result:
            invariant_names.update(node.output)
            invariant_nodes.append(node)
        else:
            varying_nodes.append(node)
    names_read_later = {name for node in varying_nodes for name in names_read(node)}
    carried_values = [name for node in invariant_nodes for name in node.output if name in names_read_later]
    return _SplitFunction(
        _prepend_constants(invariant_nodes, constants), _prepend_constants(varying_nodes, constants), carried_values
    )


def _prepend_constants(nodes: Sequence[onnx.NodeProto], constants: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes behind the constants that they read."""
    names_read_by_nodes = {name for node in nodes for name in names_read(node)}
    return [*(node for node in constants if node.output[0] in names_read_by_nodes), *nodes]


def _move(source: Any, target: Any, names: Collection[str]) -> None:
    """Move the items with these names from one list of a graph to another."""
    target.extend(item for item in source if item.name in names)
    keep(source, lambda item: item.name not in names)
