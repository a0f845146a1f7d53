"""Remove loop conditions that only repeat the trip count."""

# tf2onnx writes a `Loop` with a trip count, if TensorFlow's loop has one, and with TensorFlow's condition. In Keras's
# recurrent layers the condition is `counter < count and step < count`, a quarter of the operators of an iteration. It
# is redundant if each comparison has a counter that starts at 0 and grows by 1 (or the iteration number itself, or the
# next counter) on the left and the trip count on the right: it is true except perhaps after the last iteration.

import logging
from collections.abc import Iterator

import onnx
from onnx import helper

from .._onnx.graph_index import GraphIndex, iter_graph_indexes
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_subgraphs, list_loops

_LOG = logging.getLogger(__name__)
_PASS_THROUGH_OPS = ("Cast", "Identity")


def remove_conditions(traced: TracedModel) -> bool:
    """Remove each condition of a loop that only compares the iteration number with the trip count."""
    indexes = iter_graph_indexes(traced.model.graph)
    return any([_remove_condition(loop, nodes) for nodes in indexes for loop in list_loops(nodes.graph)])


def _remove_condition(node: onnx.NodeProto, nodes: GraphIndex) -> bool:
    """Replace the output condition of a body by its input condition and return True, if the condition is redundant."""
    (body,) = iter_subgraphs(node)
    loop = _Loop(node, body, nodes)
    if not node.input[0]:
        _LOG.debug("Condition of loop %s stays: the loop has no trip count", node.name)
        return False
    if not all(map(loop.repeats_trip_count, loop.iter_comparisons())):
        _LOG.debug("Condition of loop %s stays: it does not only compare the iteration with the trip count", node.name)
        return False
    condition = body.output[0].name
    for body_node in body.node:
        body_node.output[:] = [f"{name}/not_asked" if name == condition else name for name in body_node.output]
    body.node.append(helper.make_node("Identity", [body.input[1].name], [condition], name=f"{condition}/given"))
    return True


class _Loop:
    """A loop with a trip count."""

    def __init__(self, node: onnx.NodeProto, body: onnx.GraphProto, outer: GraphIndex) -> None:
        self._node, self._body, self._outer, self._inner = node, body, outer, GraphIndex(body, outer)
        self._count = outer.skip_ops(node.input[0], *_PASS_THROUGH_OPS)

    def iter_comparisons(self) -> Iterator[onnx.NodeProto | None]:
        """Yield the `Less` nodes whose conjunction is the condition; None for an operand of another type."""
        stack = [self._body.output[0].name]
        while stack:
            name = self._inner.skip_ops(stack.pop(), *_PASS_THROUGH_OPS)
            conjunction = self._inner.get_producer(name, "And")
            if conjunction is not None:
                stack += conjunction.input
            else:
                yield self._inner.get_producer(name, "Less")

    def repeats_trip_count(self, less: onnx.NodeProto | None) -> bool:
        """Return True if a comparison is true in each iteration except perhaps the last."""
        if less is None:
            return False
        counter, limit = (self._inner.skip_ops(name, *_PASS_THROUGH_OPS) for name in less.input)
        return self._is_iteration_counter(counter) and self._is_trip_count(limit)

    def _is_trip_count(self, name: str) -> bool:
        count = self._outer.get_scalar(self._count)
        return name == self._count or (count is not None and count == self._inner.get_scalar(name))

    def _is_iteration_counter(self, name: str) -> bool:
        """Return True if a tensor of the body is the iteration number, counted from 0, or the next number."""
        if name == self._body.input[0].name:
            return True
        for index, value in enumerate(self._body.input[2:], 2):
            next_value = self._inner.skip_ops(self._body.output[index - 1].name, *_PASS_THROUGH_OPS)
            start = self._outer.get_scalar(self._outer.skip_ops(self._node.input[index], *_PASS_THROUGH_OPS))
            if name in (value.name, next_value) and start == 0:
                return any(
                    self._inner.skip_ops(counter, *_PASS_THROUGH_OPS) == value.name
                    and self._inner.get_scalar(step) == 1
                    for counter, step in self._inner.iter_input_orders(self._inner.get_producer(next_value, "Add"))
                )
        return False
