"""Keep float32 where float16 would overflow, and report the layers that come near its limit.

onnxruntime's CPU kernels compute float16 nodes in float32 (onnxruntime#32600), so the comparison with Keras does not
see a tensor beyond 65504, which is infinite on other hardware. The ranges of all tensors that become float16 are
therefore measured in the float32 file:

- Golden cases except `POISONED`, whose garbage is masked later, decide which tensors stay float32. `LARGE` is one of
  them: a bundle must pass its own golden cases on every device. Samples replace drawn inputs there.
- Golden cases except `LARGE` decide which layers are reported as near the limit.
- A drawn input whose larger values make a float16 tensor overflow is reported: only samples show its range.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import ExportError
from .._graphs.traced import Traced
from .._graphs.walk import all_nodes
from .._model.golden_cases import LARGE, POISONED
from .._report.scopes import node_paths, shown
from .._standalone.verify import Case
from .float16 import to_float16
from .ranges import RangeMeter, largest

LIMIT = float(np.finfo(np.float16).max)
WIDE = 0.9 * LIMIT  # float16 may differ by a tenth from the float32 that is measured before the report warns
NEAR = LIMIT / 4
# of a drawn input, up to seconds since 1970; the smaller ones because powers become infinite at the larger ones
SCALES = (2.0**4, 2.0**10, 2.0**20, 2.0**30)


def to_measured_float16(
    traced: Traced, cases: Sequence[Case], provider: str, folder: Path, drawn: Collection[str] = ()
) -> tuple[Traced, dict[str, Any]]:
    """Return a float16 model without tensors that overflow in the golden cases, and the measured ranges.

    Args:
        traced: The float32 model.
        cases: The golden cases.
        provider: Provider that runs the model.
        folder: An existing folder for a file that is not kept.
        drawn: Float inputs without samples.

    Returns:
        The model; and for the parity report `float32_layers` and `near_limit`, the largest magnitude in each layer,
        and `drawn_inputs`, the first layer that overflows if the values of an input are larger.
    """
    converted = to_float16(traced, provider)
    meter = RangeMeter(traced, converted.tensors, provider, folder)
    runs = {case.name: meter.measure(case.inputs) for case in cases if case.name != POISONED}
    ranges = largest(item for run in runs.values() for item in run.items())
    wide = {tensor for tensor in converted.tensors if ranges.get(tensor, math.inf) > WIDE}
    if wide:
        converted = to_float16(traced, provider, wide)
    usual = largest(item for name, run in runs.items() if name != LARGE for item in run.items())
    near = {tensor for tensor in converted.tensors if usual.get(tensor, 0.0) > NEAR}
    first = next((case for case in cases if case.name in runs and case.name not in (LARGE, "samples")), cases[0])
    overflowing = {name: _overflowing(meter, first, name, converted.tensors) for name in drawn}
    layers = _layers(traced)
    return converted.traced, {
        "float32_layers": largest((layers.get(name, name), ranges.get(name, math.inf)) for name in sorted(wide)),
        "near_limit": largest((layers.get(name, name), usual[name]) for name in sorted(near)),
        "drawn_inputs": {name: layers.get(tensor, tensor) for name, tensor in overflowing.items() if tensor},
    }


def _overflowing(meter: RangeMeter, case: Case, name: str, tensors: Collection[str]) -> str | None:
    """Return the first float16 tensor that overflows if an input is larger than in a case, or `None`."""
    array = case.inputs[name]
    most = float(np.finfo(array.dtype).max)
    for scale in SCALES:
        scaled = np.clip(array.astype(np.float64) * scale, -most, most).astype(array.dtype)
        try:
            ranges = meter.measure({**case.inputs, name: scaled})
        except ExportError:  # such as an index beyond a table: larger values end in an error, not in an overflow
            return None
        if beyond := next((tensor for tensor in ranges if tensor in tensors and ranges[tensor] > LIMIT), None):
            return beyond
    return None


def _layers(traced: Traced) -> dict[str, str]:
    """Return the layer of each tensor: the layer that computes it, or else the first that reads it."""
    graph = traced.model.graph
    nodes = [*all_nodes(graph)]
    paths = node_paths(nodes, {*traced.weights, *(each.name for each in graph.initializer if len(each.dims) > 1)})
    pairs = [(node, shown(*path)) for node, path in zip(nodes, paths, strict=True) if path]
    layers = {name: layer for node, layer in reversed(pairs) for name in node.input}
    return layers | {name: layer for node, layer in pairs for name in node.output}
