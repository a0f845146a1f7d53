"""Float16 overflow: keep float32 for tensors beyond the range of float16, and report layers near its limit.

onnxruntime's CPU kernels compute float16 nodes in float32 (onnxruntime#32600). So the comparison with Keras cannot
detect a tensor beyond 65504, which is infinite on other hardware. Therefore the range of each tensor that would become
float16, its largest finite magnitude, is measured in the float32 file on the golden cases:

- A tensor with a range above `MAX_MEASURED_RANGE`, or that no case computes, stays float32. The case `POISONED` does
  not count, because its large values are masked later. The case `LARGE` does: a bundle must pass its golden cases on
  every device. With samples, this case has no magnified inputs.
- A layer with a range above `MIN_REPORTED_RANGE` in a case other than `LARGE` is reported as near the limit.
- Generated inputs do not show the range of real inputs. So an input without samples is multiplied by `INPUT_SCALES`,
  and the first layer that overflows is reported.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .._errors import ExportError
from .._format.interruptible_session import check_provider, open_session, run_session
from .._format.names import Arrays, Case
from .._format.session_options import build_session_options
from .._golden_cases.golden_cases import LARGE_VALUES, POISONED
from .._onnx.layer_scopes import read_node_layers
from .._onnx.model_files import save_model
from .._onnx.row_collection import collect_rows
from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._onnx.traversal import iter_nodes
from .float16 import convert_to_float16

MAX_FLOAT16 = float(np.finfo(np.float16).max)
# A margin of 10 %, because values in the float16 file differ from the measured float32 values by rounding.
MAX_MEASURED_RANGE = 0.9 * MAX_FLOAT16
# Real inputs may well be four times as large as samples; a lower limit would report more harmless layers.
MIN_REPORTED_RANGE = MAX_FLOAT16 / 4
# Up to 2**30, the magnitude of seconds since 1970. Smaller factors come first: with a larger one, powers overflow to
# infinity in float32 too, which the range ignores.
INPUT_SCALES = (2.0**4, 2.0**10, 2.0**20, 2.0**30)

Ranges = dict[str, float]  # largest finite magnitude by tensor name
Meter = Callable[[Arrays], Ranges]

_DOMAIN = f"{FUNCTION_DOMAIN}.ranges"
# Infinities and NaN are ignored: masks fill with them, and float16 can represent both. The appended zero is for empty
# tensors, which have no maximum.
_MAXIMUM_FUNCTION = """<opset_import: ["" : %d], domain: "%s"> maximum (x) => (y) {
    row = Constant <value_ints = [1, -1]> ()
    most = Constant <value_float = 3.4028235e38> ()
    zero = Constant <value = float[1, 1] {0.0}> ()
    flat = Reshape (x, row)
    magnitude = Abs (flat)
    is_finite = LessOrEqual (magnitude, most)
    finite = Where (is_finite, magnitude, zero)
    padded = Concat <axis = 1> (finite, zero)
    y = ReduceMax <keepdims = 1> (padded)
}"""


def convert_without_overflow(
    traced: TracedModel, cases: Sequence[Case], provider: str, folder: Path, drawn_inputs: Collection[str] = ()
) -> tuple[TracedModel, dict[str, Any]]:
    """Return a float16 model without overflow in the golden cases, and the entry `ranges` of the parity report.

    The entry has `float32_layers` and `near_limit`, the largest magnitude by layer, and `drawn_inputs`, the first layer
    that overflows by input without samples.
    """
    converted = convert_to_float16(traced, provider)
    measure = _make_range_meter(traced, converted.tensors, provider, folder)
    runs = {case.name: measure(case.inputs) for case in cases if case.name != POISONED}
    ranges = _find_maxima(item for run in runs.values() for item in run.items())
    float32_tensors = {tensor for tensor in converted.tensors if ranges.get(tensor, math.inf) > MAX_MEASURED_RANGE}
    if float32_tensors:
        converted = convert_to_float16(traced, provider, float32_tensors)
    usual_ranges = _find_maxima(item for name, run in runs.items() if name != LARGE_VALUES for item in run.items())
    near_tensors = {tensor for tensor in converted.tensors if usual_ranges.get(tensor, 0.0) > MIN_REPORTED_RANGE}
    drawn_case = next(
        (case for case in cases if case.name in runs and case.name not in (LARGE_VALUES, "samples")), cases[0]
    )
    overflowing = {name: _find_overflow(measure, drawn_case, name, converted.tensors) for name in drawn_inputs}
    layers = _find_layers(traced)
    return converted.traced, {
        "float32_layers": _find_maxima(
            (layers.get(name, name), ranges.get(name, math.inf)) for name in sorted(float32_tensors)
        ),
        "near_limit": _find_maxima((layers.get(name, name), usual_ranges[name]) for name in sorted(near_tensors)),
        "drawn_inputs": {name: layers.get(tensor, tensor) for name, tensor in overflowing.items() if tensor},
    }


def _make_range_meter(traced: TracedModel, tensors: Collection[str], provider: str, folder: Path) -> Meter:
    """Return a function that runs a model and returns the ranges of `tensors`, if they are computed."""
    tensors_by_output: dict[str, str] = {}

    def add_maxima(graph: onnx.GraphProto, new_name: Callable[[], str]) -> dict[str, str]:
        rows = {}
        names = [value.name for value in graph.input] + [name for node in graph.node for name in node.output]
        for tensor in filter(tensors.__contains__, names):
            row, output = new_name(), new_name()  # two branches may share the name of a tensor
            graph.node.append(helper.make_node("maximum", [tensor], [row], domain=_DOMAIN))
            rows[output], tensors_by_output[output] = row, tensor
        return rows

    model = collect_rows(traced.model, np.empty((0, 1), np.float32), add_maxima)
    opset = next(imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx"))
    model.opset_import.add(domain=_DOMAIN, version=1)
    model.functions.append(onnx.parser.parse_function(_MAXIMUM_FUNCTION % (opset, _DOMAIN)))
    save_model(replace(traced, model=model), folder / "ranges.onnx", check=False)
    ort = check_provider(provider)
    # Without optimizations: fusions of onnxruntime 1.32, such as GELU, remove tensors although `maximum` reads them.
    level = {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL}
    options = build_session_options(ort, level, {})
    session = open_session(folder / "ranges.onnx", provider, session_options=options)

    def measure(inputs: Arrays) -> Ranges:
        outputs = run_session(session, inputs) if tensors_by_output else {}
        return _find_maxima(
            (tensors_by_output[output], float(rows.max())) for output, rows in outputs.items() if rows.size
        )

    return measure


def _find_maxima(values: Iterable[tuple[str, float]]) -> Ranges:
    maxima: Ranges = {}
    for name, value in values:
        maxima[name] = max(maxima.get(name, 0.0), value)
    return maxima


def _find_overflow(measure: Meter, case: Case, name: str, tensors: Collection[str]) -> str | None:
    """Return the first float16 tensor that overflows if an input of a case is scaled up, or `None`."""
    array = case.inputs[name]
    max_value = float(np.finfo(array.dtype).max)
    for scale in INPUT_SCALES:
        scaled = np.clip(array.astype(np.float64) * scale, -max_value, max_value).astype(array.dtype)
        try:
            ranges = measure({**case.inputs, name: scaled})
        except ExportError:  # larger values raise an error, such as for an index beyond a table
            return None
        if tensor := next((tensor for tensor in ranges if tensor in tensors and ranges[tensor] > MAX_FLOAT16), None):
            return tensor
    return None


def _find_layers(traced: TracedModel) -> dict[str, str]:
    """Return the layer that computes each tensor, or else the first layer that reads it, by tensor name."""
    graph = traced.model.graph
    nodes = [*iter_nodes(graph)]
    weights = {*traced.weights, *(tensor.name for tensor in graph.initializer if len(tensor.dims) > 1)}
    pairs = [(node, layer) for node, layer in zip(nodes, read_node_layers(nodes, weights), strict=True) if layer]
    layers = {name: layer for node, layer in reversed(pairs) for name in node.input}
    return layers | {name: layer for node, layer in pairs for name in node.output}
