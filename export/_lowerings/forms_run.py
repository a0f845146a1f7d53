"""Whether golden cases ran the form of attention for large sizes, where a file decides by the sizes of a request."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from .._model.dynamic_axes import BATCH
from .._model.golden_cases import Cases
from .._model.long_cases import LONG, NOT_RUN
from .._standalone import verify
from .._tracing.attention_calls import DOMAIN, Call
from .._tracing.onnx_file import write
from .._tracing.traced import Traced
from . import adaptive

TRIED = 3  # cases, those with the longest axes


def small_only(finished: Traced, calls: Iterable[Call], golden: Cases, scratch: Path) -> list[str]:
    """Return the names of the layers whose form for large sizes no golden case reaches.

    Args:
        finished: The model as it is written.
        calls: Its calls in the `adaptive` lowering.
        golden: The golden cases.
        scratch: A folder that is there, and is removed.
    """
    thresholds = {call: least for call in calls if (least := adaptive.threshold(call)) is not None}
    refused = golden.refused.get(LONG, NOT_RUN)  # what Keras cannot run so long no request can
    if not thresholds or not refused.startswith(NOT_RUN):
        return []
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
            if not least.is_met(*(sizes[f"{call.op}/{name}"].item() for name in ("queries", "values")))
        }
    return sorted({call.layer for call in left})


def _longest(golden: Cases, number: int) -> int:
    return max((size for axis, size in golden.sizes[number].items() if axis != BATCH), default=0)


def _with_sizes(model: onnx.ModelProto, calls: Iterable[Call]) -> onnx.ModelProto:
    """Return a model whose outputs are how many queries and values each call gets."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    nodes = {node.op_type: node for node in graph.node if node.domain == DOMAIN}
    del graph.output[:]
    for call in calls:
        for name in ("queries", "values"):
            source, made = nodes[call.op].input[list(call.shapes).index(name)], f"{call.op}/{name}"
            graph.node.append(helper.make_node("Shape", [source], [made], start=-2, end=-1))
            graph.output.append(helper.make_tensor_value_info(made, TensorProto.INT64, [1]))
    return changed
