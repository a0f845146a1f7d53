"""Find layers whose large-size form no golden case runs.

`adaptive` chooses the form by the sizes (Tq, Tk) of a call, which may differ in each iteration of a loop. So a copy of
the file returns (Tq, Tk) for each run of each call; a call is covered if one of these rows meets its threshold.
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
from .._golden_cases.golden_cases import LONG, NOT_RUN, GoldenCases
from .._onnx.model_files import save_model
from .._onnx.row_collection import collect_rows
from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._tracing.attention_calls import TracedCall
from .forms import adaptive

MAX_RUNS = 3  # golden cases that run, by the length of their longest axis


def find_layers_without_large_case(
    finished: TracedModel, calls: Iterable[TracedCall], golden: GoldenCases, scratch: Path
) -> list[str]:
    """Return the names of the layers whose large-size form no golden case runs.

    All `calls` are in the lowering `adaptive`; the folder `scratch` is created and removed.
    """
    thresholds = {call: threshold for call in calls if (threshold := adaptive.get_runtime_threshold(call)) is not None}
    # If Keras cannot run inputs as long as the case `LONG`, no request can have them
    refusal = golden.refused.get(LONG, NOT_RUN)
    if not thresholds or not refusal.startswith(NOT_RUN):
        return []
    scratch.mkdir(exist_ok=True)
    file = scratch / "sizes.onnx"
    save_model(replace(finished, model=_add_size_outputs(finished.model, thresholds)), file, check=False)
    session = open_session(file, "cpu")
    shutil.rmtree(scratch)  # the file has a copy of all weights, and the session is open
    for index in sorted(range(len(golden.cases)), key=lambda index: _longest_axis(golden, index))[-MAX_RUNS:]:
        sizes = run_session(session, golden.cases[index].inputs)
        thresholds = {
            call: rule
            for call, rule in thresholds.items()
            if not any(rule.applies_to(*row) for row in sizes.get(f"{call.op_type}/sizes", ()))
        }
    return sorted({call.layer for call in thresholds})


def _longest_axis(golden: GoldenCases, index: int) -> int:
    return max((size for axis, size in golden.sizes[index].items() if axis != BATCH), default=0)


def _add_size_outputs(model: onnx.ModelProto, calls: Iterable[TracedCall]) -> onnx.ModelProto:
    """Return a model with an output (runs, 2) for each call: its numbers of queries and keys, int64, in each run."""
    positions = {call.op_type: [list(call.shapes).index(name) for name in ("queries", "values")] for call in calls}

    def add_rows(graph: onnx.GraphProto, new_name: Callable[[], str]) -> dict[str, str]:
        rows = {}
        for node in [node for node in graph.node if node.domain == FUNCTION_DOMAIN and node.op_type in positions]:
            shape, sizes, concatenated, row = new_name(), [new_name(), new_name()], new_name(), new_name()
            for name, position in zip(sizes, positions[node.op_type], strict=True):
                graph.node.append(helper.make_node("Shape", [node.input[position]], [name], start=-2, end=-1))
            graph.node.append(helper.make_node("Concat", sizes, [concatenated], axis=0))
            graph.node.append(helper.make_node("Constant", [], [shape], value_ints=[1, 2]))
            graph.node.append(helper.make_node("Reshape", [concatenated, shape], [row]))
            rows[f"{node.op_type}/sizes"] = row
        return rows

    return collect_rows(model, np.empty((0, 2), np.int64), add_rows)
