"""How fast are our layers against Keras's, each in the file of its own exporter?"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _files
from _contestant import Contestant
from _files import OURS, PORTABLE, STOCK, THEIRS
from _harness import Options
from _inference import additive_inference, cost_against_keys, dot_product_inference, order_of_positions
from _plans import DATE_CHARACTERS, HALF_FILLED, QUERY_LENGTHS, UNCHANGED, Plan, Shape
from _race import Case
from _stats import bar, rows_of, share, speed
from _thresholds import thresholds

__all__ = [
    "additive_inference", "cost_against_keys", "dot_product_inference", "layers", "order_of_positions", "thresholds",
]  # fmt: skip

OPTIMIZED = "Keras's layer, Keras's exporter, onnxruntime's optimizer"
OTHERS = {PORTABLE: "portable", 'ours, lowering="fused"': "fused"}
SPEED = 0.97  # where no more is asked
OF_ADDITIVE = 1 / 8  # of the memory of Keras's layer
COUNTED = 32  # MiB: where the peer takes less, what a session takes at all decides

DOT_64, ADDITIVE_64, ADDITIVE_256 = Plan("dot", 64), Plan("additive", 64), Plan("additive", 256)
HEADS, TRANSFORMER, STOCK_TRANSFORMER = (Plan(kind, 256, 4) for kind in ("multi-head", "block", "stock block"))
SHAPES = (
    Shape(Plan("dot", 8), 1, 8),
    Shape(DOT_64, 8, 64, HALF_FILLED, asked=SPEED),
    Shape(DOT_64, 8, 512, asked=1.25),
    Shape(DOT_64, 8, 512, HALF_FILLED, asked=2.1),
    Shape(DOT_64, 1, 4096, asked=2.0),
    Shape(DOT_64, 1, 4096, HALF_FILLED, asked=3.8),
    Shape(DOT_64, 4, 128, HALF_FILLED, Tq=1),
    Shape(DOT_64, 4, 1024, HALF_FILLED, Tq=1),
    Shape(DOT_64, 4, 8192, HALF_FILLED, Tq=1),
    Shape(Plan("dot", 64, lengths="", causal=True), 1, 1024, asked=SPEED),
    Shape(Plan("dot", 64, weights=True), 4, 256, HALF_FILLED, asked=SPEED),
    Shape(Plan("additive", 8), 1, 8),
    Shape(ADDITIVE_64, 4, 512, HALF_FILLED, Tq=1, asked=SPEED),
    Shape(ADDITIVE_256, 8, 128, asked=3.05),
    Shape(ADDITIVE_256, 8, 128, HALF_FILLED, asked=4.11),
    Shape(ADDITIVE_256, 2, 512, asked=4.14),
    Shape(ADDITIVE_256, 2, 512, HALF_FILLED, asked=6.53),
    Shape(Plan("additive", 64, weights=True), 4, 64, HALF_FILLED, asked=SPEED),
    Shape(HEADS, 4, 1024, HALF_FILLED, asked=2.2),
    Shape(HEADS, 8, 128, asked=SPEED),
    Shape(HEADS, 1, 1024, Tq=1, asked=SPEED),
    Shape(Plan("multi-head", 64, 16), 8, 64, HALF_FILLED, asked=SPEED),
    Shape(Plan("multi-head", 256, 4, lengths="", causal=True), 2, 2048, asked=2.0),
    Shape(Plan("multi-head", 256, 4, lengths="", window=(128, 128)), 1, 2048, asked=SPEED),
    Shape(Plan("multi-head", 256, 4, lengths=QUERY_LENGTHS), 4, 256, HALF_FILLED, asked=SPEED),
    Shape(Plan("multi-head", 256, 4, weights=True), 2, 256, asked=SPEED),
    Shape(TRANSFORMER, 8, 128, asked=1.1),
    Shape(TRANSFORMER, 8, 128, HALF_FILLED, asked=1.15),
    Shape(TRANSFORMER, 2, 512, asked=1.5),
    Shape(TRANSFORMER, 2, 512, HALF_FILLED, asked=2.0),
    Shape(STOCK_TRANSFORMER, 2, 512),
    Shape(STOCK_TRANSFORMER, 2, 512, HALF_FILLED),
    Shape(Plan("dates"), 1, DATE_CHARACTERS),
    Shape(Plan("dates"), 64, DATE_CHARACTERS, HALF_FILLED, asked=1.2),
    Shape(Plan("bert", 256, 4), 2, 512, asked=1.25),
    Shape(Plan("bert", 256, 4), 2, 512, HALF_FILLED, asked=1.3),
)
QUICK_SHAPES = (
    SHAPES[0],
    Shape(ADDITIVE_64, 2, 16, HALF_FILLED),
    Shape(Plan("stock block", 16, 2), 2, 16, HALF_FILLED),
)
WITH_OTHERS = (DOT_64, ADDITIVE_64, ADDITIVE_256, HEADS)  # plans whose files are written in the other lowerings too


def layers(options: Options) -> dict[str, Any]:
    """Race our file, Keras's file of its own layer, and what else can be made of either, at every shape."""
    cases = []
    for plan, shapes in _by_plan(QUICK_SHAPES if options.quick else SHAPES):
        files = _files_of(plan, options.work / f"plan{len(cases)}")
        for shape in shapes:
            cases.append(options.race(Case(shape.inputs(), files, {**shape.facts(), "asked": shape.asked}, THEIRS)))
    return {"cases": cases, "bars": aims_of(cases)}


def _by_plan(shapes: tuple[Shape, ...]) -> Iterator[tuple[Plan, list[Shape]]]:
    """The shapes of each model, which is written once; without those whose library is not installed."""
    for plan in dict.fromkeys(shape.plan for shape in shapes):
        if plan.kind != "bert" or find_spec("keras_hub"):
            yield plan, [shape for shape in shapes if shape.plan == plan]


def _files_of(plan: Plan, folder: Path) -> list[Contestant]:
    """Write the model in every way; one that cannot be written says so in the tables."""
    import _models

    folder.mkdir()
    ours = _models.ours(plan)
    theirs = _files.of_keras(THEIRS, _models.theirs(plan), folder / "theirs.onnx")
    files = [
        theirs,
        _files.of_ours(OURS, ours, folder / "ours"),
        _files.optimized(OPTIMIZED, theirs, plan.H, plan.D),
    ]
    if plan.kind not in UNCHANGED:
        # optional, as that of multi-head attention fails where lengths are not those it was traced with
        files.append(_files.of_keras(STOCK, ours, folder / "stock.onnx", optional=True))
    if plan in WITH_OTHERS:
        files += [_files.of_ours(label, ours, folder / by, lowering=by) for label, by in OTHERS.items()]
    return files


def aims_of(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is aimed at for all shapes together; the table has what is asked of each."""
    rows = [rows_of(case) for case in cases]
    speeds = [speed(case, OURS) for case in cases]
    reached = [case for case, faster in zip(cases, speeds, strict=True) if faster and faster >= case["asked"]]
    optimized = [
        row[OPTIMIZED]["ms"]["median"] / row[OURS]["ms"]["median"] for row in rows if {OPTIMIZED, OURS} <= row.keys()
    ]
    portable = [speed(case, PORTABLE) for case in cases if PORTABLE in rows_of(case)]
    large = [case for case, row in zip(cases, rows, strict=True) if row[THEIRS]["memory"] >= COUNTED]
    shares = [share(case, OURS, THEIRS) for case in large]
    of_additive = [share(case, OURS, THEIRS) for case in large if case["size"].startswith(str(ADDITIVE_256))]
    text = f"extra memory relative to Keras's layer, worst shape where that takes {COUNTED} MiB or more"
    return [
        bar(f"the slowest of {len(cases)} shapes: speed over Keras's layer", speeds, SPEED),
        bar("shapes that reach their target speed", len(reached), len(cases)),
        bar("the slowest shape: speed over Keras's file after onnxruntime's optimizer", optimized, 1),
        bar('the slowest shape with lowering="portable": speed over Keras\'s layer', portable, 1),
        bar(text, shares, 1, at_least=False),
        bar(f"{text}, {ADDITIVE_256}", of_additive, OF_ADDITIVE, at_least=False),
    ]
