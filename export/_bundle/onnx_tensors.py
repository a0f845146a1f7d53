"""Intermediate tensors of an ONNX file, by the name of the TensorFlow tensor."""

import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from .._format.interruptible_session import open_session
from .._format.names import Arrays
from .._onnx.load_graph import load_graph, write_with_linked_weights
from .._onnx.traversal import iter_input_names


class OnnxGraph:
    """Graph of an ONNX file, without the tensors inside loops and branches.

    Attributes:
        tensors: Names of tensors and weights, in topological order.
        sources: For each computed tensor, the names of the inputs of its node, with outer values of its subgraphs.
        ops: For each computed tensor, the operator type of its node.
    """

    def __init__(self, file: Path) -> None:
        """Read the graph without external data, or raise an error of `load_graph`."""
        self._model = load_graph(file)
        self._folder = file.parent
        outputs = [(name, node) for node in self._model.graph.node for name in filter(None, node.output)]
        self.sources = {name: set(iter_input_names(node)) for name, node in outputs}
        self.ops = {name: node.op_type for name, node in outputs}
        self.tensors = list(self._iterate_tensors())
        self._later_names = self._find_later_names()

    def _iterate_tensors(self) -> Iterator[str]:
        weights = {weight.name for weight in self._model.graph.initializer}
        for node in self._model.graph.node:
            for name in (*node.input, *node.output):
                if name in weights or (name and name in node.output):
                    weights.discard(name)  # yields a weight only at its first use
                    yield name

    def _find_later_names(self) -> dict[str, list[str]]:
        later_names: dict[str, list[str]] = {}
        for name, sources in self.sources.items():
            for base_name in (re.sub(r"__\d+(:\d+)$", r"\1", name), f"{name}:0", re.sub(r"(\.\w+|_\d+)$", ":0", name)):
                if base_name != name and base_name in sources:
                    later_names.setdefault(base_name, []).append(name)
        return later_names

    def find_versions(self, name: str) -> list[str]:
        """Return the names in the file that a TensorFlow tensor may correspond to."""
        # If one TensorFlow operator becomes several nodes, tf2onnx often gives its name to the first node: `Rsqrt:0` is
        # then the square root, and `Rsqrt.Reciprocal`, or `Rsqrt__165:0` in older files, the reciprocal.
        return [name, *self._later_names.get(name, ())]

    def session(self, names: Iterable[str], provider: str, scratch: Path) -> Any:
        """Open a session that also returns the tensors in `names`, except weights.

        The folder `scratch`, which holds the extended model, must exist as long as the session.
        """
        import onnx

        extended = deepcopy(self._model)
        available = {value.name for value in (*extended.graph.output, *extended.graph.initializer)}
        extended.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in available)
        return open_session(write_with_linked_weights(extended, self._folder, scratch), provider)

    def read_weights(self, names: Iterable[str]) -> Arrays:
        """Return the arrays of the named weights without external data, by name."""
        import onnx

        requested = set(names)
        weights = [weight for weight in self._model.graph.initializer if weight.name in requested]
        internal = (weight for weight in weights if weight.data_location != onnx.TensorProto.EXTERNAL)
        return {weight.name: onnx.numpy_helper.to_array(weight) for weight in internal}
