"""Hoist loop invariants, also out of attention functions, to before the loop.

The step of a decoder attends to a memory that stays, behind masks that stay. A call of attention in the body reads both
what stays and what does not: its function is cut in two, of which the first stands before the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx
from onnx import helper

from .._onnx.graph_edits import keep, refill
from .._onnx.traversal import all_graphs, all_nodes, graphs_in, names_read


def hoist(model: onnx.ModelProto) -> None:
    """Move, in place, out of the bodies of loops what reads nothing that is made in them."""
    _Hoisting(model).within(model.graph)


class _Hoisting:
    """Moves nodes from inner graphs to those around them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._functions = {(each.domain, each.name): each for each in model.functions}
        self._calls = Counter((node.domain, node.op_type) for node in all_nodes(model.graph))
        made = Counter(name for graph in all_graphs(model.graph) for name in _names_made(graph))
        self._made_twice = {name for name, times in made.items() if times > 1}  # in bodies beside each other

    def within(self, graph: onnx.GraphProto) -> None:
        """Treat the loops of a graph, the innermost first."""
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            for inner in graphs_in(node):
                self.within(inner)
                if node.op_type == "Loop":
                    nodes += self._taken_out(graph, inner)
            nodes.append(node)
        refill(graph.node, nodes)

    def _taken_out(self, graph: onnx.GraphProto, body: onnx.GraphProto) -> list[onnx.NodeProto]:
        """Return what goes before a loop, and take it out of its body."""
        changing = {value.name for value in body.input} | {name for node in body.node for name in node.output}
        changing |= self._made_twice
        results = {value.name for value in body.output}
        before: list[onnx.NodeProto] = []
        kept: list[onnx.NodeProto] = []
        for node in body.node:
            if self._can_move(node, changing, results):
                changing.difference_update(node.output)
                before.append(node)
                continue
            first = self._cut(node, changing)
            before += [] if first is None else [first]
            kept.append(node)
        moved = {name for node in before for name in node.output}
        refill(body.node, kept)
        _hand_over(body.value_info, graph.value_info, moved)
        _hand_over(body.initializer, graph.initializer, {name for node in before for name in node.input})
        return before

    def _can_move(self, node: onnx.NodeProto, changing: Collection[str], results: Collection[str]) -> bool:
        """Tell whether a node gives the same in each step."""
        return (
            not any(graphs_in(node))
            and not node.op_type.startswith("Random")
            and not any(name in changing for name in node.input)
            and not any(name in results or name in self._made_twice for name in node.output)
        )

    def _cut(self, node: onnx.NodeProto, changing: Collection[str]) -> onnx.NodeProto | None:
        """Cut the function that a node calls, and return the call of its first part; None where there is none."""
        function = self._functions.get((node.domain, node.op_type))
        if function is None or self._calls[node.domain, node.op_type] > 1:
            return None
        given = dict(zip(function.input, node.input, strict=False))
        early, late, crossing = _parts(function, {name for name, source in given.items() if source not in changing})
        if not crossing:
            return None
        read = [name for name in given if any(name in each.input for each in early)]
        first = self._model.functions.add()
        first.CopyFrom(function)
        first.name = f"{function.name}_before_loop"
        del first.input[:], first.output[:], function.node[:], first.node[:]
        first.input.extend(read)
        first.output.extend(crossing)
        first.node.extend(early)
        function.input.extend(crossing)
        function.node.extend(late)
        made = [f"{node.output[0]}/before_loop/{name}" for name in crossing]
        node.input.extend([*[""] * (len(function.input) - len(crossing) - len(node.input)), *made])
        return helper.make_node(
            first.name, [given[name] for name in read], made, name=f"{node.name}/before_loop", domain=node.domain
        )


def _parts(
    function: onnx.FunctionProto, staying: Collection[str]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto], list[str]]:
    """Return the nodes of a function that depend on some of its inputs alone, the others, and what those read of them.

    Constants are with those that read them.
    """
    known, results, early, late = {*staying, ""}, {*function.output}, [], []
    constants = [node for node in function.node if node.op_type == "Constant"]
    known.update(node.output[0] for node in constants)
    for node in function.node:
        if node.op_type == "Constant":
            continue
        if known.issuperset(node.input) and not any(graphs_in(node)) and results.isdisjoint(node.output):
            known.update(node.output)
            early.append(node)
        else:
            late.append(node)
    read = {name for node in late for name in names_read(node)}
    crossing = [name for node in early for name in node.output if name in read]
    return _with(constants, early), _with(constants, late), crossing


def _with(constants: Iterable[onnx.NodeProto], nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return copies of nodes behind those of the constants that they read."""
    read = {name for node in nodes for name in names_read(node)}
    found = [*(node for node in constants if node.output[0] in read), *nodes]
    return [onnx.NodeProto.FromString(node.SerializeToString()) for node in found]


def _names_made(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of what a graph makes or holds."""
    yield from (each.name for each in graph.initializer)
    for node in graph.node:
        yield from node.output


def _hand_over(source: Any, target: Any, names: Collection[str]) -> None:
    """Move what has one of some names from one list of a graph to that of another."""
    target.extend(each for each in source if each.name in names)
    keep(source, lambda each: each.name not in names)
