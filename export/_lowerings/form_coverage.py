"""Find attention layers whose form for large sizes is run by no golden case.

The lowering `adaptive` chooses the form of a call by its sizes (Tq, Tk), which may differ in each iteration of a loop.
So a copy of the file returns the sizes of each execution of a call. If they meet the threshold, the large form ran.
"""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from .._format.interruptible_session import open_session, run_session
from .._golden_cases.dynamic_axes import BATCH
from .._golden_cases.golden_cases import LONG, NOT_RUN_PREFIX, GoldenCases
from .._onnx.model_files import save_model
from .._onnx.row_collection import collect_rows
from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._tracing.attention_calls import TracedCall
from .forms import adaptive

MAX_CASES = 3  # number of golden cases that run: those with the longest axes


def find_layers_without_large_case(
    traced_model: TracedModel, calls: Iterable[TracedCall], golden: GoldenCases, scratch: Path
) -> list[str]:
    """Return the names of the layers for which no golden case runs the large form.

    The lowering of all `calls` is `adaptive`. The folder `scratch` is created and removed.
    """
    thresholds = {call: threshold for call in calls if (threshold := adaptive.get_runtime_threshold(call)) is not None}
    # If Keras fails on the case `LONG`, the model takes no long inputs, and no layer needs a case with large sizes.
    reason = golden.refusals.get(LONG)  # why the case has no golden outputs: Keras failed on it, or it was not run
    if not thresholds or (reason is not None and not reason.startswith(NOT_RUN_PREFIX)):
        return []
    scratch.mkdir(exist_ok=True)
    file = scratch / "sizes.onnx"
    save_model(replace(traced_model, model=_add_size_outputs(traced_model.model, thresholds)), file, check=False)
    session = open_session(file, "cpu")
    shutil.rmtree(scratch)  # the file has a copy of all weights, and the session is open
    for index in sorted(range(len(golden.cases)), key=lambda index: _get_longest_axis(golden, index))[-MAX_CASES:]:
        size_rows = run_session(session, golden.cases[index].inputs)
        thresholds = {
            call: threshold
            for call, threshold in thresholds.items()
            if not any(threshold.applies_to(*row) for row in size_rows.get(f"{call.op_type}/sizes", ()))
        }
    return sorted({call.layer for call in thresholds})


def _get_longest_axis(golden: GoldenCases, index: int) -> int:
    return max((size for axis, size in golden.sizes[index].items() if axis != BATCH), default=0)


def _add_size_outputs(model: onnx.ModelProto, calls: Iterable[TracedCall]) -> onnx.ModelProto:
    """Return a model that also returns the rows (Tq, Tk) of each call, as int64 (executions of the call, 2)."""
    positions = {call.op_type: [list(call.shapes).index(name) for name in ("queries", "values")] for call in calls}

    def add_rows(graph: onnx.GraphProto, new_name: Callable[[], str]) -> dict[str, str]:
        row_names = {}
        for node in [node for node in graph.node if node.domain == FUNCTION_DOMAIN and node.op_type in positions]:
            shape, size_names, concatenated, row = new_name(), [new_name(), new_name()], new_name(), new_name()
            for name, position in zip(size_names, positions[node.op_type], strict=True):
                graph.node.append(helper.make_node("Shape", [node.input[position]], [name], start=-2, end=-1))
            graph.node.append(helper.make_node("Concat", size_names, [concatenated], axis=0))
            graph.node.append(helper.make_node("Constant", [], [shape], value_ints=[1, 2]))
            graph.node.append(helper.make_node("Reshape", [concatenated, shape], [row]))
            row_names[f"{node.op_type}/sizes"] = row
        return row_names

    return collect_rows(model, np.empty((0, 2), np.int64), add_rows)
