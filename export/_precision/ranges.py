"""Measure the ranges of float tensors: the largest finite magnitude of each tensor in a run.

A tensor in a body, a branch or a function cannot be an output of the model. So the graph that holds it returns the
maximum as one more output, and the node around the graph does too: a loop once per iteration, a conditional with zero
in the other branch. Infinities and NaN do not count: a mask may fill with them, and float16 has both.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from .._graphs.edits import refill
from .._graphs.onnx_file import write
from .._graphs.traced import DOMAIN, Traced
from .._graphs.walk import graphs_in
from .._standalone import verify
from .._standalone.verify import Arrays

Tensor = tuple[str, str]  # the name of the function that holds the tensor ("" for the graph), and its own name
Ranges = dict[Tensor, float]
Maxima = list[tuple[Tensor, str]]  # tensors, and the names of their maxima

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


class RangeMeter:
    """A session that returns the ranges of tensors instead of the outputs of a model."""

    def __init__(self, traced: Traced, tensors: Collection[Tensor], provider: str, folder: Path) -> None:
        """Write the model with maxima as its only outputs, and open it.

        Args:
            traced: The model; it is not changed.
            tensors: Float tensors of the model.
            provider: Provider that runs the model.
            folder: An existing folder for the file.
        """
        model = deepcopy(traced.model)
        maxima = _Instrumentation(model, tensors).add_to(model.graph)
        self._tensors = [tensor for tensor, _ in maxima]
        refill(model.graph.output, [_number(name) for _, name in maxima])
        opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
        for holder in (model, *model.functions):
            holder.opset_import.add(domain=_ADDED, version=1)
        model.functions.append(onnx.parser.parse_function(_MAXIMUM % (opset, _ADDED)))
        self._session = None
        if maxima:
            write(replace(traced, model=model), folder / "ranges.onnx", check=False)
            self._session = verify.open_session(folder / "ranges.onnx", provider)

    def measure(self, inputs: Arrays) -> Ranges:
        """Return the largest finite magnitude of each tensor; tensors that cannot be measured are missing.

        Raises:
            ExportError: If onnxruntime cannot run the model on the inputs.
        """
        maxima = {} if self._session is None else verify.run_session(self._session, inputs)
        ranges: Ranges = {}
        for tensor, maximum in zip(self._tensors, maxima.values(), strict=True):  # two branches may share a name
            ranges[tensor] = max(ranges.get(tensor, 0.0), maximum.item())
        return ranges


class _Instrumentation:
    """The maxima that are added to a model, its functions included."""

    def __init__(self, model: onnx.ModelProto, tensors: Collection[Tensor]) -> None:
        self._tensors = tensors
        self._functions = {(each.domain, each.name): each for each in model.functions}
        self._of_functions: dict[str, Maxima] = {}
        self._numbers = itertools.count()

    def add_to(self, graph: onnx.GraphProto | onnx.FunctionProto, owner: str = "") -> Maxima:
        """Add the maxima of a graph and of the graphs within, in place, and return their names in the graph."""
        maxima: Maxima = []
        nodes: list[onnx.NodeProto] = []
        inputs = [each if isinstance(each, str) else each.name for each in graph.input]
        for node in (None, *graph.node):
            read = [((owner, name), name) for name in (inputs if node is None else node.output)]
            read = [(tensor, name) for tensor, name in read if tensor in self._tensors]
            if node is not None:
                nodes.append(node)
                read += self._within(node, owner)
            for tensor, name in read:
                maxima.append((tensor, self._name()))
                nodes.append(helper.make_node("maximum", [name], [maxima[-1][1]], domain=_ADDED))
        refill(graph.node, nodes)
        return maxima

    def _name(self) -> str:
        return f"{_ADDED}/{next(self._numbers)}"

    def _within(self, node: onnx.NodeProto, owner: str) -> Maxima:
        """Let a node return the maxima of its function, body or branches as further outputs."""
        function = self._functions.get((node.domain, node.op_type))
        graphs = [*graphs_in(node)] if node.op_type in ("If", "Loop") else []
        if function is not None:
            if function.name not in self._of_functions:
                self._of_functions[function.name] = self.add_to(function, function.name)
                function.output.extend(name for _, name in self._of_functions[function.name])
            tensors = [tensor for tensor, _ in self._of_functions[function.name]]
            count = len(function.output)
        else:
            maxima = [self.add_to(graph, owner) for graph in graphs]
            tensors = [tensor for inner in maxima for tensor, _ in inner]
            for graph, (number, inner) in itertools.product(graphs, enumerate(maxima)):
                names = [name if graph is graphs[number] else self._name() for _, name in inner]
                if graph is not graphs[number]:
                    graph.node.extend(helper.make_node("Constant", [], [name], value_floats=[0.0]) for name in names)
                graph.output.extend(map(_number, names))
            count = len(graphs[0].output) - (node.op_type == "Loop") if graphs else 0  # a condition is no output
        names = [self._name() for _ in tensors]
        if names:  # an output that nothing reads may be missing at the end
            node.output.extend([""] * (count - len(names) - len(node.output)) + names)
        return [*zip(tensors, names, strict=True)]


def _number(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None])
