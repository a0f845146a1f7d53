"""Speed of attention layers of this package and of Keras, in the files of their own exporters."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _files
from _contestant import Contestant
from _files import OURS, PORTABLE, THEIRS
from _harness import Options
from _plans import DATE_CHARACTERS, HALF_FILLED, QUERY_LENGTHS, Plan, PlannedCall
from _race import Case

LOWERINGS = {PORTABLE: "portable", 'ours, lowering="fused"': "fused"}

DOT_64, ADDITIVE_64, ADDITIVE_256 = Plan("dot", 64), Plan("additive", 64), Plan("additive", 256)
HEADS, TRANSFORMER, STOCK_TRANSFORMER = (Plan(kind, 256, 4) for kind in ("multi-head", "block", "stock block"))
CALLS = (
    PlannedCall(Plan("dot", 8), 1, 8),
    PlannedCall(DOT_64, 8, 64, HALF_FILLED),
    PlannedCall(DOT_64, 8, 512),
    PlannedCall(DOT_64, 8, 512, HALF_FILLED),
    PlannedCall(DOT_64, 1, 4096),
    PlannedCall(DOT_64, 1, 4096, HALF_FILLED),
    PlannedCall(DOT_64, 4, 128, HALF_FILLED, Tq=1),
    PlannedCall(DOT_64, 4, 1024, HALF_FILLED, Tq=1),
    PlannedCall(DOT_64, 4, 8192, HALF_FILLED, Tq=1),
    PlannedCall(Plan("dot", 64, length_kind="", causal=True), 1, 1024),
    PlannedCall(Plan("dot", 64, returns_weights=True), 4, 256, HALF_FILLED),
    PlannedCall(Plan("additive", 8), 1, 8),
    PlannedCall(ADDITIVE_64, 4, 512, HALF_FILLED, Tq=1),
    PlannedCall(ADDITIVE_256, 8, 128),
    PlannedCall(ADDITIVE_256, 8, 128, HALF_FILLED),
    PlannedCall(ADDITIVE_256, 2, 512),
    PlannedCall(ADDITIVE_256, 2, 512, HALF_FILLED),
    PlannedCall(Plan("additive", 64, returns_weights=True), 4, 64, HALF_FILLED),
    PlannedCall(HEADS, 4, 1024, HALF_FILLED),
    PlannedCall(HEADS, 8, 128),
    PlannedCall(HEADS, 1, 1024, Tq=1),
    PlannedCall(Plan("multi-head", 64, 16), 8, 64, HALF_FILLED),
    PlannedCall(Plan("multi-head", 256, 4, length_kind="", causal=True), 2, 2048),
    PlannedCall(Plan("multi-head", 256, 4, length_kind="", window=(128, 128)), 1, 2048),
    PlannedCall(Plan("multi-head", 256, 4, length_kind=QUERY_LENGTHS), 4, 256, HALF_FILLED),
    PlannedCall(Plan("multi-head", 256, 4, returns_weights=True), 2, 256),
    PlannedCall(TRANSFORMER, 8, 128),
    PlannedCall(TRANSFORMER, 8, 128, HALF_FILLED),
    PlannedCall(TRANSFORMER, 2, 512),
    PlannedCall(TRANSFORMER, 2, 512, HALF_FILLED),
    PlannedCall(STOCK_TRANSFORMER, 2, 512),
    PlannedCall(STOCK_TRANSFORMER, 2, 512, HALF_FILLED),
    PlannedCall(Plan("dates"), 1, DATE_CHARACTERS),
    PlannedCall(Plan("dates"), 64, DATE_CHARACTERS, HALF_FILLED),
    PlannedCall(Plan("bert", 256, 4), 2, 512),
    PlannedCall(Plan("bert", 256, 4), 2, 512, HALF_FILLED),
)
QUICK_CALLS = (
    CALLS[0],
    PlannedCall(ADDITIVE_64, 2, 16, HALF_FILLED),
    PlannedCall(Plan("stock block", 16, 2), 2, 16, HALF_FILLED),
)
# Plans whose files are also written in the other lowerings.
PLANS_WITH_LOWERINGS = (DOT_64, ADDITIVE_64, ADDITIVE_256, HEADS)


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Race the files of both layers at every call."""
    results = []
    for plan, calls in _group_by_plan(QUICK_CALLS if options.quick else CALLS):
        files = _write_files(plan, options.folder / f"plan{len(results)}")
        for call in calls:
            results.append(options.race(Case(call.make_inputs(), files, str(call), THEIRS)))
    return results


def _group_by_plan(calls: tuple[PlannedCall, ...]) -> Iterator[tuple[Plan, list[PlannedCall]]]:
    """Yield each plan with its calls; skip plans whose library is not installed."""
    for plan in dict.fromkeys(call.plan for call in calls):
        if plan.kind != "bert" or find_spec("keras_hub"):
            yield plan, [call for call in calls if call.plan == plan]


def _write_files(plan: Plan, folder: Path) -> list[Contestant]:
    """Write the files of a plan and return them as contestants."""
    import _models

    folder.mkdir()
    ours = _models.build_ours(plan)
    theirs = _files.write_keras_file(THEIRS, _models.build_theirs(plan), folder / "theirs.onnx")
    files = [theirs, _files.write_bundle(OURS, ours, folder / "ours")]
    if plan in PLANS_WITH_LOWERINGS:
        for label, lowering in LOWERINGS.items():
            files.append(_files.write_bundle(label, ours, folder / lowering, lowering=lowering))
    return files
