"""Measure the ranges of float tensors: the largest finite magnitude of each tensor in a run.

A tensor in a body, a branch or a function cannot be an output of the model. So the graph that holds it returns the
maximum as one more output, and the node around the graph does too: a loop once per iteration, a conditional with zero
in the other branch. Infinities and NaN do not count: a mask may fill with them, and float16 has both.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import onnx
from onnx import TensorProto, helper

from .._bundle.session_options import session_options
from .._graphs.edits import refill
from .._graphs.onnx_file import write
from .._graphs.traced import DOMAIN, Traced
from .._graphs.walk import graphs_in
from .._standalone import verify
from .._standalone.verify import Arrays

Tensor = tuple[str, str]  # the name of the function that holds the tensor ("" for the graph), and its own name
Maxima = list[tuple[Tensor, str]]  # tensors, and the names of their maxima
Key = TypeVar("Key")

_ADDED = f"{DOMAIN}.ranges"  # the domain of the function below, and the beginning of all added names
# `Pad`, because an empty tensor and a loop without iterations have no maximum
_MAXIMUM = """<opset_import: ["" : %d], domain: "%s"> maximum (x) => (y) {
    last = Constant <value_ints = [-1]> ()
    pads = Constant <value_ints = [1, 0]> ()
    most = Constant <value_float = 3.4028235e38> ()
    zero = Constant <value_float = 0.0> ()
    flat = Reshape (x, last)
    magnitude = Abs (flat)
    is_finite = LessOrEqual (magnitude, most)
    finite = Where (is_finite, magnitude, zero)
    padded = Pad (finite, pads)
    y = ReduceMax <keepdims = 1> (padded)
}"""


def largest(values: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Return the largest value of each key."""
    maxima: dict[Key, float] = {}
    for key, value in values:
        maxima[key] = max(maxima.get(key, 0.0), value)
    return maxima


class RangeMeter:
    """A session that returns the ranges of tensors instead of the outputs of a model."""

    def __init__(self, traced: Traced, tensors: Collection[Tensor], provider: str, folder: Path) -> None:
        """Write a copy of the model with maxima as its only outputs, and open it.

        Args:
            traced: The model.
            tensors: Float tensors of the model.
            provider: Provider that runs the model.
            folder: An existing folder for the file.
        """
        self._measured, self._numbers = tensors, itertools.count()
        self._calls: dict[tuple[str, str], tuple[list[Tensor], int]] = {}  # added outputs, and the number of the others
        model = deepcopy(traced.model)
        for function in model.functions:  # a function calls none that comes later
            maxima, count = self._add_to(function, function.name), len(function.output)
            function.output.extend(name for _, name in maxima)
            self._calls[function.domain, function.name] = [tensor for tensor, _ in maxima], count
        maxima = self._add_to(model.graph)
        refill(model.graph.output, [_maximum_info(name) for _, name in maxima])
        opset = next(imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx"))
        for holder in (model, *model.functions):
            holder.opset_import.add(domain=_ADDED, version=1)
        model.functions.append(onnx.parser.parse_function(_MAXIMUM % (opset, _ADDED)))
        self._tensors = [tensor for tensor, _ in maxima]
        self._session: Any = None
        if maxima:
            write(replace(traced, model=model), folder / "ranges.onnx", check=False)
            ort = verify.check_provider(provider)
            # fusions of onnxruntime 1.32, such as that of GELU, remove tensors that are read here too
            level = {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL}
            options = session_options(ort, level, {})
            self._session = verify.open_session(folder / "ranges.onnx", provider, session_options=options)

    def measure(self, inputs: Arrays) -> dict[Tensor, float]:
        """Return the largest finite magnitude of each tensor; tensors that cannot be measured are missing.

        Raises:
            ExportError: If onnxruntime cannot run the model on the inputs.
        """
        maxima = {} if self._session is None else verify.run_session(self._session, inputs)
        return largest(zip(self._tensors, (maximum.item() for maximum in maxima.values()), strict=True))

    def _name(self) -> str:
        return f"{_ADDED}/{next(self._numbers)}"

    def _add_to(self, graph: onnx.GraphProto | onnx.FunctionProto, owner: str = "") -> Maxima:
        """Add the maxima of a graph and of the graphs within, in place, and return their names in the graph."""
        maxima: Maxima = []
        nodes: list[onnx.NodeProto] = []

        def add(tensor: Tensor, name: str) -> None:
            maxima.append((tensor, self._name()))
            nodes.append(helper.make_node("maximum", [name], [maxima[-1][1]], domain=_ADDED))

        def add_measured(names: Iterable[str]) -> None:
            for name in names:
                if (owner, name) in self._measured:
                    add((owner, name), name)

        add_measured(value if isinstance(value, str) else value.name for value in graph.input)
        for node in graph.node:
            nodes.append(node)
            add_measured(node.output)
            for tensor, name in self._add_within(node, owner):
                add(tensor, name)
        refill(graph.node, nodes)
        return maxima

    def _add_within(self, node: onnx.NodeProto, owner: str) -> Maxima:
        """Let a node return the maxima of its function, body or branches as further outputs."""
        tensors, count = self._calls.get((node.domain, node.op_type), ([], 0))
        if graphs := [*graphs_in(node)] if node.op_type in ("If", "Loop") else []:
            maxima = [self._add_to(graph, owner) for graph in graphs]
            tensors = [tensor for inner in maxima for tensor, _ in inner]
            count = len(graphs[0].output) - (node.op_type == "Loop")  # the condition of a body is no output of its loop
            for graph, (holder, inner) in itertools.product(graphs, [*zip(graphs, maxima, strict=True)]):
                names = [name if graph is holder else self._name() for _, name in inner]
                if graph is not holder:
                    graph.node.extend(helper.make_node("Constant", [], [name], value_floats=[0.0]) for name in names)
                graph.output.extend(map(_maximum_info, names))
        if not tensors:
            return []
        names = [self._name() for _ in tensors]
        node.output.extend([""] * (count - len(node.output)) + names)  # an unused output may be missing at the end
        return [*zip(tensors, names, strict=True)]


def _maximum_info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None])
