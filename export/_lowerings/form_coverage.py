"""Find layers whose large-size form no golden case runs."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from .._format.interruptible_session import open_session, run_session
from .._golden_cases.dynamic_axes import BATCH
from .._golden_cases.golden_cases import LONG, NOT_RUN, Cases
from .._onnx.model_files import write
from .._onnx.row_collection import with_rows
from .._onnx.traced_model import DOMAIN, Traced
from .._tracing.attention_calls import Call
from .forms import adaptive

MAX_RUNS = 3  # of the cases with the longest axes


def small_only(finished: Traced, calls: Iterable[Call], golden: Cases, scratch: Path) -> list[str]:
    """Return the names of the layers whose form for large sizes no golden case reaches.

    Args:
        finished: The model as it is written.
        calls: Its calls in the `adaptive` lowering.
        golden: The golden cases.
        scratch: A folder for a file that is not kept; it is removed.
    """
    unmet = {call: least for call in calls if (least := adaptive.threshold(call)) is not None}
    refused = golden.refused.get(LONG, NOT_RUN)  # a request as long as the case that Keras cannot run is impossible
    if not unmet or not refused.startswith(NOT_RUN):
        return []
    scratch.mkdir(exist_ok=True)
    file = scratch / "sizes.onnx"
    write(replace(finished, model=_with_sizes(finished.model, unmet)), file, check=False)
    session = open_session(file, "cpu")
    shutil.rmtree(scratch)  # the weights, once more
    for number in sorted(range(len(golden.cases)), key=lambda number: _longest(golden, number))[-MAX_RUNS:]:
        sizes = run_session(session, golden.cases[number].inputs)
        unmet = {
            call: least
            for call, least in unmet.items()
            if not any(least.is_met(*row) for row in sizes.get(f"{call.op}/sizes", ()))
        }
    return sorted({call.layer for call in unmet})


def _longest(golden: Cases, number: int) -> int:
    return max((size for axis, size in golden.sizes[number].items() if axis != BATCH), default=0)


def _with_sizes(model: onnx.ModelProto, calls: Iterable[Call]) -> onnx.ModelProto:
    """Return a model whose outputs are the numbers of queries and values of each call, with a row for each run."""
    sources = {call.op: [list(call.shapes).index(name) for name in ("queries", "values")] for call in calls}

    def add(graph: onnx.GraphProto, new_name: Callable[[], str]) -> dict[str, str]:
        rows = {}
        for node in [each for each in graph.node if each.domain == DOMAIN and each.op_type in sources]:
            shape, pair, joined, row = new_name(), [new_name(), new_name()], new_name(), new_name()
            for name, number in zip(pair, sources[node.op_type], strict=True):
                graph.node.append(helper.make_node("Shape", [node.input[number]], [name], start=-2, end=-1))
            graph.node.append(helper.make_node("Concat", pair, [joined], axis=0))
            graph.node.append(helper.make_node("Constant", [], [shape], value_ints=[1, 2]))
            graph.node.append(helper.make_node("Reshape", [joined, shape], [row]))
            rows[f"{node.op_type}/sizes"] = row
        return rows

    return with_rows(model, np.empty((0, 2), np.int64), add)
