"""Fetch intermediate tensors of an ONNX file by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from .._format.interruptible_session import open_session
from .._format.names import Arrays
from .._onnx.load_graph import load_graph, write_beside_weights
from .._onnx.traversal import names_read


class OnnxGraph:
    """The graph of an ONNX file.

    Attributes:
        tensors: Names of the weights and of all that is computed outside loops and branches, each after what it is
            made from.
        sources: What each of them is computed from directly.
        ops: The type of the op that computes it.
    """

    def __init__(self, file: Path) -> None:
        """Read the file, without weights that lie in files of their own.

        Raises:
            BundleError: onnx cannot read it.
            ExportError: onnx is not installed.
        """
        self._model = load_graph(file)
        self._folder = file.parent
        self.sources = {name: set(names_read(node)) for node in self._model.graph.node for name in node.output if name}
        self.ops = {name: node.op_type for node in self._model.graph.node for name in node.output if name}
        self.tensors = list(self._in_order())
        self._continued = self._continuations()

    def _in_order(self) -> Iterator[str]:
        weights = {weight.name for weight in self._model.graph.initializer}
        for node in self._model.graph.node:
            for name in (*node.input, *node.output):
                if name in weights or (name and name in node.output):
                    weights.discard(name)  # at its first use only
                    yield name

    def _continuations(self) -> dict[str, list[str]]:
        continued: dict[str, list[str]] = {}
        for name, sources in self.sources.items():
            for begun in (re.sub(r"__\d+(:\d+)$", r"\1", name), f"{name}:0", re.sub(r"(\.\w+|_\d+)$", ":0", name)):
                if begun != name and begun in sources:
                    continued.setdefault(begun, []).append(name)
        return continued

    def versions(self, name: str) -> list[str]:
        """Return the names under which a TensorFlow tensor may stand here: its own, and those that begin with it.

        Where one TensorFlow op becomes several nodes, tf2onnx often gives its name to the first: `Rsqrt:0` is then the
        square root, and `Rsqrt.Reciprocal` one over it, or `Rsqrt__165:0` in a file of before.
        """
        return [name, *self._continued.get(name, ())]

    def session(self, names: Iterable[str], provider: str, scratch: Path) -> Any:
        """Open a session that gives these tensors too, as far as it must compute them.

        Args:
            names: The tensors.
            provider: Where to run.
            scratch: A folder for the changed file; it must outlive the session.
        """
        import onnx

        changed = deepcopy(self._model)
        there = {value.name for value in (*changed.graph.output, *changed.graph.initializer)}
        changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in there)
        return open_session(write_beside_weights(changed, self._folder, scratch), provider)

    def weights(self, names: Iterable[str]) -> Arrays:
        """Return those of these tensors that are weights in the file itself."""
        import onnx

        wanted = set(names)
        return {
            weight.name: onnx.numpy_helper.to_array(weight)
            for weight in self._model.graph.initializer
            if weight.name in wanted and weight.data_location != onnx.TensorProto.EXTERNAL
        }
