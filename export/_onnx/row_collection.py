"""Collect rows of numbers from a graph, its loops and its branches in arrays with one row for each run of a node.

A tensor in a body or a branch cannot be an output of the model. So a loop carries the rows of its iterations as state,
and a branch without a node returns no rows for it.
"""

import itertools
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .traversal import graphs_in

_NO_ROWS = "rows/none"
Rows = dict[str, str]  # names of arrays of rows, by the output that returns them
Add = Callable[[onnx.GraphProto, Callable[[], str]], Rows]


def with_rows(model: onnx.ModelProto, empty: np.ndarray, add: Add) -> onnx.ModelProto:
    """Return a copy of a model whose only outputs are rows, with the dtype and width of an empty array.

    `add` adds nodes that compute rows to a graph, without its subgraphs; its second argument returns new names.
    """
    numbers = itertools.count()

    def new_name() -> str:
        return f"rows/{next(numbers)}"

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(empty.dtype), [None, empty.shape[1]])

    def of_graph(graph: onnx.GraphProto) -> Rows:
        nodes = [*graph.node]
        rows = add(graph, new_name)
        for node in nodes:
            if node.op_type == "Loop":
                rows |= of_loop(node)
            elif node.op_type == "If":
                rows |= of_branches(node)
        return rows

    def of_loop(node: onnx.NodeProto) -> Rows:
        (body,) = graphs_in(node)
        rows = {}
        for output, name in of_graph(body).items():
            before, after, rows[output] = new_name(), new_name(), new_name()
            body.node.append(helper.make_node("Concat", [before, name], [after], axis=0))
            state = len(node.input) - 2  # scan outputs come behind it
            node.input.append(_NO_ROWS)
            node.output.extend([""] * (state - len(node.output)))  # an unused output may be missing at the end
            node.output.insert(state, rows[output])
            body.input.append(value(before))
            body.output.insert(state + 1, value(after))
        return rows

    def of_branches(node: onnx.NodeProto) -> Rows:
        branches = [(branch, of_graph(branch)) for branch in graphs_in(node)]
        rows = {output: new_name() for _, inner in branches for output in inner}
        node.output.extend(rows.values())
        for branch, inner in branches:
            for output in rows:
                name = new_name()  # the output of a branch must be computed in the branch
                branch.node.append(helper.make_node("Identity", [inner.get(output, _NO_ROWS)], [name]))
                branch.output.append(value(name))
        return rows

    changed = deepcopy(model)
    graph = changed.graph
    graph.initializer.append(numpy_helper.from_array(empty, _NO_ROWS))
    rows = of_graph(graph)
    del graph.output[:]
    for output, name in rows.items():
        graph.node.append(helper.make_node("Identity", [name], [output]))
        graph.output.append(value(output))
    return changed
