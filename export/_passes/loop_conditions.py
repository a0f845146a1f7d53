"""Remove loop conditions that only repeat the trip count.

tf2onnx gives a `Loop` the number of its steps where TensorFlow has one, and its condition as well. That of Keras's
recurrent layers compares two counters with that number, which takes a quarter of the operators of a step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from .._onnx.graph_index import Nodes, views
from .._onnx.traversal import graphs_in, loops_in

_PASS_ON = ("Cast", "Identity")


def drop_conditions(graph: onnx.GraphProto) -> None:
    """Replace, in place, the condition of each loop that only says that the number of steps is not reached yet."""
    for nodes in views(graph):
        for node in loops_in(nodes.graph):
            (body,) = graphs_in(node)
            loop = _Loop(node, body, nodes)
            if node.input[0] and all(map(loop.is_before_the_last, loop.conditions())):
                _set_condition(body)


class _Loop:
    """A loop with a number of steps."""

    def __init__(self, node: onnx.NodeProto, body: onnx.GraphProto, around: Nodes) -> None:
        self._node, self._body, self._around, self._within = node, body, around, Nodes(body, around)
        self._count = around.source_of(node.input[0], *_PASS_ON)

    def conditions(self) -> Iterator[onnx.NodeProto | None]:
        """Yield the comparisons that must all hold for another step; None for what is something else."""
        waiting = [self._body.output[0].name]
        while waiting:
            name = self._within.source_of(waiting.pop(), *_PASS_ON)
            both = self._within.maker(name, "And")
            if both is not None:
                waiting += both.input
            else:
                yield self._within.maker(name, "Less")

    def is_before_the_last(self, less: onnx.NodeProto | None) -> bool:
        """Tell whether a comparison holds in each step but perhaps the last."""
        if less is None:
            return False
        number, end = (self._within.source_of(name, *_PASS_ON) for name in less.input)
        return self._counts_steps(number) and self._is_count(end)

    def _is_count(self, name: str) -> bool:
        if name == self._count:
            return True
        count, other = self._around.constant(self._count), self._within.constant(name)
        return count is not None and other is not None and np.array_equal(count.reshape(-1), other.reshape(-1))

    def _counts_steps(self, name: str) -> bool:
        """Tell whether a tensor of the body is the number of the step, from 0, or that of the next."""
        if name == self._body.input[0].name:
            return True
        for place, value in enumerate(self._body.input[2:], 2):
            after = self._within.source_of(self._body.output[place - 1].name, *_PASS_ON)
            first = self._around.constant(self._around.source_of(self._node.input[place], *_PASS_ON))
            if name in (value.name, after) and first is not None and first.size == 1 and first.item() == 0:
                sides = self._within.both_orders(self._within.maker(after, "Add"))
                return any(self._within.source_of(a, *_PASS_ON) == value.name and self._is_one(b) for a, b in sides)
        return False

    def _is_one(self, name: str) -> bool:
        step = self._within.constant(name)
        return step is not None and step.size == 1 and step.item() == 1


def _set_condition(body: onnx.GraphProto) -> None:
    """Let a body hand on the condition that it was given."""
    name = body.output[0].name
    for node in body.node:
        node.output[:] = [f"{each}/not_asked" if each == name else each for each in node.output]
    body.node.append(helper.make_node("Identity", [body.input[1].name], [name], name=f"{name}/given"))
