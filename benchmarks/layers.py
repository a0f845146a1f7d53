"""Speed of attention layers of this package and of Keras, in the files of their own exporters."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _files
from _contestant import Contestant
from _files import OURS, PORTABLE, THEIRS
from _harness import Options
from _plans import DATE_CHARACTERS, HALF_FILLED, QUERY_LENGTHS, Plan, Shape
from _race import Case

LOWERINGS = {PORTABLE: "portable", 'ours, lowering="fused"': "fused"}

DOT_64, ADDITIVE_64, ADDITIVE_256 = Plan("dot", 64), Plan("additive", 64), Plan("additive", 256)
HEADS, TRANSFORMER, STOCK_TRANSFORMER = (Plan(kind, 256, 4) for kind in ("multi-head", "block", "stock block"))
SHAPES = (
    Shape(Plan("dot", 8), 1, 8),
    Shape(DOT_64, 8, 64, HALF_FILLED),
    Shape(DOT_64, 8, 512),
    Shape(DOT_64, 8, 512, HALF_FILLED),
    Shape(DOT_64, 1, 4096),
    Shape(DOT_64, 1, 4096, HALF_FILLED),
    Shape(DOT_64, 4, 128, HALF_FILLED, Tq=1),
    Shape(DOT_64, 4, 1024, HALF_FILLED, Tq=1),
    Shape(DOT_64, 4, 8192, HALF_FILLED, Tq=1),
    Shape(Plan("dot", 64, lengths="", causal=True), 1, 1024),
    Shape(Plan("dot", 64, weights=True), 4, 256, HALF_FILLED),
    Shape(Plan("additive", 8), 1, 8),
    Shape(ADDITIVE_64, 4, 512, HALF_FILLED, Tq=1),
    Shape(ADDITIVE_256, 8, 128),
    Shape(ADDITIVE_256, 8, 128, HALF_FILLED),
    Shape(ADDITIVE_256, 2, 512),
    Shape(ADDITIVE_256, 2, 512, HALF_FILLED),
    Shape(Plan("additive", 64, weights=True), 4, 64, HALF_FILLED),
    Shape(HEADS, 4, 1024, HALF_FILLED),
    Shape(HEADS, 8, 128),
    Shape(HEADS, 1, 1024, Tq=1),
    Shape(Plan("multi-head", 64, 16), 8, 64, HALF_FILLED),
    Shape(Plan("multi-head", 256, 4, lengths="", causal=True), 2, 2048),
    Shape(Plan("multi-head", 256, 4, lengths="", window=(128, 128)), 1, 2048),
    Shape(Plan("multi-head", 256, 4, lengths=QUERY_LENGTHS), 4, 256, HALF_FILLED),
    Shape(Plan("multi-head", 256, 4, weights=True), 2, 256),
    Shape(TRANSFORMER, 8, 128),
    Shape(TRANSFORMER, 8, 128, HALF_FILLED),
    Shape(TRANSFORMER, 2, 512),
    Shape(TRANSFORMER, 2, 512, HALF_FILLED),
    Shape(STOCK_TRANSFORMER, 2, 512),
    Shape(STOCK_TRANSFORMER, 2, 512, HALF_FILLED),
    Shape(Plan("dates"), 1, DATE_CHARACTERS),
    Shape(Plan("dates"), 64, DATE_CHARACTERS, HALF_FILLED),
    Shape(Plan("bert", 256, 4), 2, 512),
    Shape(Plan("bert", 256, 4), 2, 512, HALF_FILLED),
)
QUICK_SHAPES = (
    SHAPES[0],
    Shape(ADDITIVE_64, 2, 16, HALF_FILLED),
    Shape(Plan("stock block", 16, 2), 2, 16, HALF_FILLED),
)
# Plans whose files are also written in the other lowerings.
PLANS_WITH_LOWERINGS = (DOT_64, ADDITIVE_64, ADDITIVE_256, HEADS)


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Race the files of both layers at every shape."""
    results = []
    for plan, shapes in _group_by_plan(QUICK_SHAPES if options.quick else SHAPES):
        files = _write_files(plan, options.folder / f"plan{len(results)}")
        for shape in shapes:
            results.append(options.race(Case(shape.make_inputs(), files, str(shape), THEIRS)))
    return results


def _group_by_plan(shapes: tuple[Shape, ...]) -> Iterator[tuple[Plan, list[Shape]]]:
    """Yield each plan with its shapes; skip plans whose library is not installed."""
    for plan in dict.fromkeys(shape.plan for shape in shapes):
        if plan.kind != "bert" or find_spec("keras_hub"):
            yield plan, [shape for shape in shapes if shape.plan == plan]


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
