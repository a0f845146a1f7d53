"""Collect rows in a graph, its loops and its branches: numbers of which an array of two axes has one row per run.

A tensor in a body or a branch cannot be an output of the model. So a loop carries the rows of its iterations as state,
and a branch without a node returns no rows for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .walk import graphs_in

_NO_ROWS = "rows/none"
Rows = dict[str, str]  # names of arrays of rows, by the output that returns them
Add = Callable[[onnx.GraphProto, Callable[[], str]], Rows]


def with_rows(model: onnx.ModelProto, empty: np.ndarray, add: Add) -> onnx.ModelProto:
    """Return a copy of a model whose only outputs are rows.

    Args:
        model: The model.
        empty: An array without rows, of their dtype and width.
        add: Adds nodes that compute rows to a graph, but not to the graphs within; its second argument returns new
            names.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    graph.initializer.append(numpy_helper.from_array(empty, _NO_ROWS))
    collection = _Collection(empty, add)
    rows = collection.of(graph)
    del graph.output[:]
    for output, name in rows.items():
        graph.node.append(helper.make_node("Identity", [name], [output]))
        graph.output.append(collection.value(output))
    return changed


class _Collection:
    """Puts nodes into a graph and those in it that collect rows."""

    def __init__(self, empty: np.ndarray, add: Add) -> None:
        self._empty, self._add = empty, add
        self._numbers = itertools.count()

    def of(self, graph: onnx.GraphProto) -> Rows:
        """Return, by output, the names of the rows in a graph."""
        nodes = [*graph.node]
        rows = self._add(graph, self._name)
        for node in nodes:
            if node.op_type == "Loop":
                rows |= self._of_loop(node)
            elif node.op_type == "If":
                rows |= self._of_branches(node)
        return rows

    def _of_loop(self, node: onnx.NodeProto) -> Rows:
        (body,) = graphs_in(node)
        rows = {}
        for output, name in self.of(body).items():
            before, after, rows[output] = self._name(), self._name(), self._name()
            body.node.append(helper.make_node("Concat", [before, name], [after], axis=0))
            state = len(node.input) - 2  # scan outputs come behind it
            node.input.append(_NO_ROWS)
            node.output.extend([""] * (state - len(node.output)))  # an unused output may be missing at the end
            node.output.insert(state, rows[output])
            body.input.append(self.value(before))
            body.output.insert(state + 1, self.value(after))
        return rows

    def _of_branches(self, node: onnx.NodeProto) -> Rows:
        branches = [(branch, self.of(branch)) for branch in graphs_in(node)]
        rows = {output: self._name() for output in dict.fromkeys(output for _, inner in branches for output in inner)}
        node.output.extend(rows.values())
        for branch, inner in branches:
            for output in rows:
                name = self._name()  # a branch gives what is made in it
                branch.node.append(helper.make_node("Identity", [inner.get(output, _NO_ROWS)], [name]))
                branch.output.append(self.value(name))
        return rows

    def _name(self) -> str:
        return f"rows/{next(self._numbers)}"

    def value(self, name: str) -> onnx.ValueInfoProto:
        """Return the type of rows under a name."""
        dtype = helper.np_dtype_to_tensor_dtype(self._empty.dtype)
        return helper.make_tensor_value_info(name, dtype, [None, self._empty.shape[1]])
