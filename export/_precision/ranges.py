"""Measure the ranges of float tensors: the largest finite magnitude of each tensor in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from .._bundle.session_options import session_options
from .._graphs.collected_rows import with_rows
from .._graphs.onnx_file import write
from .._graphs.traced import DOMAIN, Traced
from .._standalone import verify
from .._standalone.verify import Arrays

Ranges = dict[str, float]

_DOMAIN = f"{DOMAIN}.ranges"
# Infinities and NaN do not count: a mask may fill with them, and float16 has both. An empty tensor has no maximum,
# hence `Pad`.
_MAXIMUM = """<opset_import: ["" : %d], domain: "%s"> maximum (x) => (y) {
    row = Constant <value_ints = [1, -1]> ()
    pads = Constant <value_ints = [0, 1, 0, 0]> ()
    most = Constant <value_float = 3.4028235e38> ()
    zero = Constant <value_float = 0.0> ()
    flat = Reshape (x, row)
    magnitude = Abs (flat)
    is_finite = LessOrEqual (magnitude, most)
    finite = Where (is_finite, magnitude, zero)
    padded = Pad (finite, pads)
    y = ReduceMax <keepdims = 1> (padded)
}"""


def largest(values: Iterable[tuple[str, float]]) -> Ranges:
    """Return the largest value of each name."""
    maxima: Ranges = {}
    for name, value in values:
        maxima[name] = max(maxima.get(name, 0.0), value)
    return maxima


class RangeMeter:
    """A session that returns the ranges of tensors instead of the outputs of a model."""

    def __init__(self, traced: Traced, tensors: Collection[str], provider: str, folder: Path) -> None:
        """Write a copy of the model with maxima as its only outputs, and open it.

        Args:
            traced: The model.
            tensors: Names of float tensors, not of constants.
            provider: Provider that runs the model.
            folder: An existing folder for the file.
        """
        self._tensors: dict[str, str] = {}  # by output

        def add(graph: onnx.GraphProto, new_name: Callable[[], str]) -> dict[str, str]:
            rows = {}
            names = [value.name for value in graph.input] + [name for node in graph.node for name in node.output]
            for tensor in filter(tensors.__contains__, names):
                row, output = new_name(), new_name()  # two branches may share the name of a tensor
                graph.node.append(helper.make_node("maximum", [tensor], [row], domain=_DOMAIN))
                rows[output], self._tensors[output] = row, tensor
            return rows

        model = with_rows(traced.model, np.empty((0, 1), np.float32), add)
        opset = next(imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx"))
        model.opset_import.add(domain=_DOMAIN, version=1)
        model.functions.append(onnx.parser.parse_function(_MAXIMUM % (opset, _DOMAIN)))
        write(replace(traced, model=model), folder / "ranges.onnx", check=False)
        ort = verify.check_provider(provider)
        # fusions of onnxruntime 1.32, such as that of GELU, remove tensors that are read here too
        level = {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL}
        options = session_options(ort, level, {})
        self._session = verify.open_session(folder / "ranges.onnx", provider, session_options=options)

    def measure(self, inputs: Arrays) -> Ranges:
        """Return the largest finite magnitude of each tensor; tensors that no node computes in the run are missing.

        Raises:
            ExportError: If onnxruntime cannot run the model on the inputs.
        """
        outputs = verify.run_session(self._session, inputs) if self._tensors else {}
        return largest((self._tensors[output], float(rows.max())) for output, rows in outputs.items() if rows.size)
