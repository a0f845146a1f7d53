"""Remove loop conditions that only repeat the trip count.

tf2onnx gives a `Loop` the number of its steps where TensorFlow has one, and its condition as well. The condition of
Keras's recurrent layers compares two counters with that number, which is a quarter of the operators of a step.
"""

import logging
from collections.abc import Iterator

import onnx
from onnx import helper

from .._onnx.graph_index import Nodes, views
from .._onnx.traced_model import Traced
from .._onnx.traversal import graphs_in, loops_in

_LOG = logging.getLogger(__name__)
_PASS_THROUGH_OPS = ("Cast", "Identity")


def remove_conditions(traced: Traced) -> bool:
    """Remove, as a pass, each condition of a loop that only compares the number of the step with the trip count."""
    indexes = views(traced.model.graph)
    return any([_remove_condition(loop, nodes) for nodes in indexes for loop in loops_in(nodes.graph)])


def _remove_condition(node: onnx.NodeProto, nodes: Nodes) -> bool:
    """Replace the condition that a body returns by the one that it gets, and return whether this is possible."""
    (body,) = graphs_in(node)
    loop = _Loop(node, body, nodes)
    if not node.input[0]:
        _LOG.debug("Condition of loop %s stays: the loop has no trip count", node.name)
        return False
    if not all(map(loop.repeats_trip_count, loop.iter_comparisons())):
        _LOG.debug("Condition of loop %s stays: it is no comparison of the step with the trip count", node.name)
        return False
    condition = body.output[0].name
    for body_node in body.node:
        body_node.output[:] = [f"{name}/not_asked" if name == condition else name for name in body_node.output]
    body.node.append(helper.make_node("Identity", [body.input[1].name], [condition], name=f"{condition}/given"))
    return True


class _Loop:
    """A loop with a number of steps."""

    def __init__(self, node: onnx.NodeProto, body: onnx.GraphProto, outer: Nodes) -> None:
        self._node, self._body, self._around, self._within = node, body, outer, Nodes(body, outer)
        self._count = outer.source_of(node.input[0], *_PASS_THROUGH_OPS)

    def iter_comparisons(self) -> Iterator[onnx.NodeProto | None]:
        """Yield the comparisons that must all hold for another step, None for an operator of another type."""
        stack = [self._body.output[0].name]
        while stack:
            name = self._within.source_of(stack.pop(), *_PASS_THROUGH_OPS)
            conjunction = self._within.maker(name, "And")
            if conjunction is not None:
                stack += conjunction.input
            else:
                yield self._within.maker(name, "Less")

    def repeats_trip_count(self, less: onnx.NodeProto | None) -> bool:
        """Return whether a comparison holds in each step except perhaps the last."""
        if less is None:
            return False
        counter, limit = (self._within.source_of(name, *_PASS_THROUGH_OPS) for name in less.input)
        return self._is_iteration_counter(counter) and self._is_trip_count(limit)

    def _is_trip_count(self, name: str) -> bool:
        count = self._around.number(self._count)
        return name == self._count or (count is not None and count == self._within.number(name))

    def _is_iteration_counter(self, name: str) -> bool:
        """Return whether a tensor of the body is the number of the step, counted from 0, or of the next step."""
        if name == self._body.input[0].name:
            return True
        for index, value in enumerate(self._body.input[2:], 2):
            next_value = self._within.source_of(self._body.output[index - 1].name, *_PASS_THROUGH_OPS)
            start = self._around.number(self._around.source_of(self._node.input[index], *_PASS_THROUGH_OPS))
            if name in (value.name, next_value) and start == 0:
                return any(
                    self._within.source_of(counter, *_PASS_THROUGH_OPS) == value.name and self._within.number(step) == 1
                    for counter, step in self._within.both_orders(self._within.maker(next_value, "Add"))
                )
        return False
