"""Whether golden cases ran the form of attention for large sizes, where a file decides by the sizes of a request."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._graphs.onnx_file import write
from .._graphs.traced import DOMAIN, Traced
from .._graphs.walk import graphs_in
from .._model.dynamic_axes import BATCH
from .._model.golden_cases import Cases
from .._model.long_cases import LONG, NOT_RUN
from .._standalone import verify
from .._tracing.attention_calls import Call
from . import adaptive

_NO_ROWS, _ROW = "sizes/none", "sizes/row"
TRIED = 3  # cases, those with the longest axes


def small_only(finished: Traced, calls: Iterable[Call], golden: Cases, scratch: Path) -> list[str]:
    """Return the names of the layers whose form for large sizes no golden case reaches.

    Args:
        finished: The model as it is written.
        calls: Its calls in the `adaptive` lowering.
        golden: The golden cases.
        scratch: A folder for a file that is not kept; it is removed.
    """
    thresholds = {call: least for call in calls if (least := adaptive.threshold(call)) is not None}
    refused = golden.refused.get(LONG, NOT_RUN)  # what Keras cannot run so long no request can
    if not thresholds or not refused.startswith(NOT_RUN):
        return []
    scratch.mkdir(exist_ok=True)
    file = scratch / "sizes.onnx"
    write(replace(finished, model=_with_sizes(finished.model, thresholds)), file, check=False)
    session = verify.open_session(file, "cpu")
    shutil.rmtree(scratch)  # the weights, once more
    left = dict(thresholds)
    for number in sorted(range(len(golden.cases)), key=lambda number: _longest(golden, number))[-TRIED:]:
        sizes = verify.run_session(session, golden.cases[number].inputs)
        left = {
            call: least
            for call, least in left.items()
            if not any(least.is_met(*each) for each in sizes.get(f"{call.op}/sizes", np.empty((0, 2))).tolist())
        }
    return sorted({call.layer for call in left})


def _longest(golden: Cases, number: int) -> int:
    return max((size for axis, size in golden.sizes[number].items() if axis != BATCH), default=0)


def _with_sizes(model: onnx.ModelProto, calls: Iterable[Call]) -> onnx.ModelProto:
    """Return a model whose outputs are how many queries and values each call gets, a row each time it is computed."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    for name, array in ((_NO_ROWS, np.empty((0, 2), np.int64)), (_ROW, np.array([1, 2]))):
        graph.initializer.append(numpy_helper.from_array(array, name))
    rows = _Rows(calls).of(graph)
    del graph.output[:]
    for op, name in rows.items():
        graph.node.append(helper.make_node("Identity", [name], [f"{op}/sizes"]))
        graph.output.append(_value(f"{op}/sizes"))
    return changed


class _Rows:
    """Puts nodes into a graph and those in it that collect sizes: rows of the numbers of queries and values."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._sources = {call.op: [list(call.shapes).index(name) for name in ("queries", "values")] for call in calls}
        self._made = 0

    def of(self, graph: onnx.GraphProto) -> dict[str, str]:
        """Return, by the op of each call in a graph, the name of the tensor of its rows."""
        found: dict[str, str] = {}
        for node in list(graph.node):
            if node.domain == DOMAIN and node.op_type in self._sources:
                found[node.op_type] = self._of_call(graph, node)
            elif node.op_type == "Loop":
                found |= self._of_loop(node)
            elif node.op_type == "If":
                found |= self._of_branches(node)
        return found

    def _of_call(self, graph: onnx.GraphProto, node: onnx.NodeProto) -> str:
        pair, joined, row = [self._name(), self._name()], self._name(), self._name()
        for name, number in zip(pair, self._sources[node.op_type], strict=True):
            graph.node.append(helper.make_node("Shape", [node.input[number]], [name], start=-2, end=-1))
        graph.node.append(helper.make_node("Concat", pair, [joined], axis=0))
        graph.node.append(helper.make_node("Reshape", [joined, _ROW], [row]))
        return row

    def _of_loop(self, node: onnx.NodeProto) -> dict[str, str]:
        (body,) = graphs_in(node)
        found = {}
        for op, name in self.of(body).items():
            before, after, found[op] = self._name(), self._name(), self._name()
            body.node.append(helper.make_node("Concat", [before, name], [after], axis=0))
            state = len(node.input) - 2  # scan outputs come behind it
            node.input.append(_NO_ROWS)
            node.output.insert(state, found[op])
            body.input.append(_value(before))
            body.output.insert(state + 1, _value(after))
        return found

    def _of_branches(self, node: onnx.NodeProto) -> dict[str, str]:
        branches = [(branch, self.of(branch)) for branch in graphs_in(node)]
        found = {op: self._name() for op in dict.fromkeys(op for _, rows in branches for op in rows)}
        node.output.extend(found.values())
        for branch, rows in branches:
            for op in found:
                name = self._name()  # a branch gives what is made in it
                branch.node.append(helper.make_node("Identity", [rows.get(op, _NO_ROWS)], [name]))
                branch.output.append(_value(name))
        return found

    def _name(self) -> str:
        self._made += 1
        return f"sizes/{self._made}"


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, [None, 2])
