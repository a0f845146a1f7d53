"""Collect tensors of a graph, its loops and its branches in outputs with one row for each run of a node.

A tensor in a subgraph cannot be an output of the model. So a loop carries the rows of its iterations as state, to which
the body appends, and a branch without the node returns an array of 0 rows.
"""

import itertools
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .traversal import iter_subgraphs

_NO_ROWS = "rows/none"
Rows = dict[str, str]  # tensor of rows by the output of the model that returns them
Add = Callable[[onnx.GraphProto, Callable[[], str]], Rows]


def collect_rows(model: onnx.ModelProto, empty: np.ndarray, add: Add) -> onnx.ModelProto:
    """Return a copy of a model whose only outputs are rows (runs, n), in the dtype of the array `empty` (0, n).

    `add` adds nodes that compute rows to a graph, without its subgraphs; its second argument returns new names.
    """
    indices = itertools.count()

    def new_name() -> str:
        return f"rows/{next(indices)}"

    def make_value_info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(empty.dtype), [None, empty.shape[1]])

    def collect_from_graph(graph: onnx.GraphProto) -> Rows:
        nodes = [*graph.node]
        rows = add(graph, new_name)
        for node in nodes:
            if node.op_type == "Loop":
                rows |= collect_from_loop(node)
            elif node.op_type == "If":
                rows |= collect_from_branches(node)
        return rows

    def collect_from_loop(node: onnx.NodeProto) -> Rows:
        (body,) = iter_subgraphs(node)
        rows = {}
        for output, name in collect_from_graph(body).items():
            previous_rows, all_rows, rows[output] = new_name(), new_name(), new_name()
            body.node.append(helper.make_node("Concat", [previous_rows, name], [all_rows], axis=0))
            # State outputs precede scan outputs; unused outputs may be missing at the end. The first two inputs of a
            # `Loop` are the trip count and the condition, the first output of its body is the condition
            state_size = len(node.input) - 2
            node.input.append(_NO_ROWS)
            node.output.extend([""] * (state_size - len(node.output)))
            node.output.insert(state_size, rows[output])
            body.input.append(make_value_info(previous_rows))
            body.output.insert(state_size + 1, make_value_info(all_rows))
        return rows

    def collect_from_branches(node: onnx.NodeProto) -> Rows:
        branches = [(branch, collect_from_graph(branch)) for branch in iter_subgraphs(node)]
        rows = {output: new_name() for _, branch_rows in branches for output in branch_rows}
        node.output.extend(rows.values())
        for branch, branch_rows in branches:
            for output in rows:
                # The output of a branch must be computed in the branch
                name = new_name()
                branch.node.append(helper.make_node("Identity", [branch_rows.get(output, _NO_ROWS)], [name]))
                branch.output.append(make_value_info(name))
        return rows

    copy = deepcopy(model)
    graph = copy.graph
    graph.initializer.append(numpy_helper.from_array(empty, _NO_ROWS))
    rows = collect_from_graph(graph)
    del graph.output[:]
    for output, name in rows.items():
        graph.node.append(helper.make_node("Identity", [name], [output]))
        graph.output.append(make_value_info(output))
    return copy
