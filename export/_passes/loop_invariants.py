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


class _Parts(NamedTuple):
    """A function in two parts; `crossing` are the results of the first part that the second reads."""

    early: list[onnx.NodeProto]
    late: list[onnx.NodeProto]
    crossing: list[str]


class _Hoisting:
    """Moves nodes from bodies to the graphs around them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._functions = {(function.domain, function.name): function for function in model.functions}
        self._num_calls = Counter((node.domain, node.op_type) for node in all_nodes(model.graph))
        graphs = [*all_graphs(model.graph)]
        names = Counter(name for graph in graphs for node in graph.node for name in node.output)
        names.update(tensor.name for graph in graphs for tensor in graph.initializer)
        self._repeated_names = {name for name, times in names.items() if times > 1}  # in parallel bodies

    def hoist_from(self, graph: onnx.GraphProto) -> bool:
        """Hoist out of the loops of a graph, the innermost first, and return whether any node moved."""
        nodes: list[onnx.NodeProto] = []
        is_changed = False
        for node in graph.node:
            for inner in graphs_in(node):
                is_changed |= self.hoist_from(inner)
                if node.op_type == "Loop":
                    nodes += self._take_out(graph, inner)
            nodes.append(node)
        is_changed |= len(nodes) > len(graph.node)
        refill(graph.node, nodes)
        return is_changed

    def _take_out(self, graph: onnx.GraphProto, body: onnx.GraphProto) -> list[onnx.NodeProto]:
        """Remove invariant nodes from a body, and return the nodes that go before the loop."""
        changing = {value.name for value in body.input} | {name for node in body.node for name in node.output}
        changing |= self._repeated_names
        results = {value.name for value in body.output}
        hoisted: list[onnx.NodeProto] = []
        remaining: list[onnx.NodeProto] = []
        for node in body.node:
            if self._is_invariant(node, changing, results):
                changing.difference_update(node.output)
                hoisted.append(node)
            else:
                hoisted += self._split_call(node, changing)
                remaining.append(node)
        refill(body.node, remaining)
        _move(body.value_info, graph.value_info, {name for node in hoisted for name in node.output})
        _move(body.initializer, graph.initializer, {name for node in hoisted for name in node.input})
        return hoisted

    def _is_invariant(self, node: onnx.NodeProto, changing: Collection[str], results: Collection[str]) -> bool:
        return (
            not any(graphs_in(node))
            and not node.op_type.startswith("Random")
            and not any(name in changing for name in node.input)
            and not any(name in results or name in self._repeated_names for name in node.output)
        )

    def _split_call(self, node: onnx.NodeProto, changing: Collection[str]) -> list[onnx.NodeProto]:
        """Split the function that a node calls, and return the call of its first part; empty without such a part.

        The second part replaces the function, with the results of the first part as further inputs at the end.
        """
        function = self._functions.get((node.domain, node.op_type))
        if function is None or self._num_calls[node.domain, node.op_type] > 1:
            return []
        arguments = dict(zip(function.input, node.input, strict=False))
        parts = _parts(function, {name for name, argument in arguments.items() if argument not in changing})
        if not parts.crossing:
            return []
        early_inputs = [name for name in arguments if any(name in early.input for early in parts.early)]
        make = partial(helper.make_function, function.domain, opset_imports=function.opset_import)
        first = make(f"{function.name}_before_loop", early_inputs, parts.crossing, parts.early)
        second = make(function.name, [*function.input, *parts.crossing], function.output, parts.late)
        results = [f"{node.output[0]}/before_loop/{name}" for name in parts.crossing]
        left_out = [""] * (len(function.input) - len(node.input))
        node.input.extend([*left_out, *results])
        self._model.functions.append(first)
        function.CopyFrom(second)
        inputs = [arguments[name] for name in early_inputs]
        return [helper.make_node(first.name, inputs, results, f"{node.name}/before_loop", domain=node.domain)]


def _parts(function: onnx.FunctionProto, invariant_inputs: Collection[str]) -> _Parts:
    """Split a function into the nodes that depend on some of its inputs only, and the others."""
    constants = [node for node in function.node if node.op_type == "Constant"]
    invariant = {*invariant_inputs, "", *(node.output[0] for node in constants)}
    early: list[onnx.NodeProto] = []
    late: list[onnx.NodeProto] = []
    for node in function.node:
        if node.op_type == "Constant":
            continue
        is_result = not {*function.output}.isdisjoint(node.output)
        if invariant.issuperset(node.input) and not any(graphs_in(node)) and not is_result:
            invariant.update(node.output)
            early.append(node)
        else:
            late.append(node)
    read = {name for node in late for name in names_read(node)}
    crossing = [name for node in early for name in node.output if name in read]
    return _Parts(_with_constants(early, constants), _with_constants(late, constants), crossing)


def _with_constants(nodes: Sequence[onnx.NodeProto], constants: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes behind the constants that they read."""
    read = {name for node in nodes for name in names_read(node)}
    return [*(node for node in constants if node.output[0] in read), *nodes]


def _move(source: Any, target: Any, names: Collection[str]) -> None:
    """Move the items with these names from one list of a graph to another."""
    target.extend(item for item in source if item.name in names)
    keep(source, lambda item: item.name not in names)
