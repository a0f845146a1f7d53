"""Is a file of our layers ever slower than that of Keras's own layers, written by Keras's own exporter?"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _harness
import _models
from _plans import ADDITIVE, BERT, BLOCK, DATE_CHARACTERS, DATES, DOT, MULTI_HEAD, QUERY_LENGTHS, Plan
from _process import Contestant
from _race import Case, race
from _sizes import ALL_VALID, HALF_FILLED
from _stats import bar

from keras_attn_export import ExportError, ParityError, export_model

THEIRS = "Keras's layer, Keras's exporter"
OURS = "ours"
STOCK = "our layer, Keras's exporter"
OPTIMIZED = "Keras's layer, onnxruntime's optimizer"
PORTABLE = 'ours, lowering="portable"'
SPEED, OVER_OPTIMIZED, OF_PORTABLE = 0.97, 1.0, 1.0
MEMORY, MEMORY_OF_ADDITIVE = 1.0, 1 / 8
COUNTED = 32  # MiB: where the peer takes less, what a session takes at all decides


@dataclass(frozen=True)
class Shape:
    """A plan at one size.

    Attributes:
        plan: The model.
        B: Batch.
        Tk: Keys.
        fill: How many of them take part.
        asked: The speed over Keras's layer that is aimed at.
        Tq: Queries, where there are not as many as keys.
        portable: Whether `lowering="portable"` takes part.
        memory: The share of the peer's extra memory that is aimed at.
    """

    plan: Plan
    B: int
    Tk: int
    fill: str = ALL_VALID
    asked: float = SPEED
    Tq: int = 0
    portable: bool = False
    memory: float = MEMORY

    def __str__(self) -> str:
        """Return what tables call it."""
        places = f"Tq{self.Tq} Tk{self.Tk}" if self.Tq else f"T{self.Tk}"
        return f"{self.plan}, B{self.B} {places}"


DOT_8, DOT_64 = Plan(DOT, 8), Plan(DOT, 64)
ADDITIVE_64, ADDITIVE_256 = Plan(ADDITIVE, 64), Plan(ADDITIVE, 256)
HEADS = Plan(MULTI_HEAD, 256, 4)
TRANSFORMER = Plan(BLOCK, 256, 4)
SHAPES = (
    Shape(DOT_8, 1, 8, asked=1.0),
    Shape(DOT_64, 8, 64, HALF_FILLED),
    Shape(DOT_64, 8, 512, asked=1.25, portable=True),
    Shape(DOT_64, 8, 512, HALF_FILLED, asked=2.1, portable=True),
    Shape(DOT_64, 1, 4096, asked=2.0),
    Shape(DOT_64, 1, 4096, HALF_FILLED, asked=3.8),
    Shape(DOT_64, 4, 128, HALF_FILLED, Tq=1, asked=1.0),
    Shape(DOT_64, 4, 1024, HALF_FILLED, Tq=1, asked=1.0),
    Shape(DOT_64, 4, 8192, HALF_FILLED, Tq=1, asked=1.0),
    Shape(Plan(DOT, 64, lengths="", causal=True), 1, 1024),
    Shape(Plan(DOT, 64, weights=True), 4, 256, HALF_FILLED),
    Shape(Plan(ADDITIVE, 8), 1, 8, asked=1.0),
    Shape(ADDITIVE_64, 4, 512, HALF_FILLED, Tq=1),
    Shape(ADDITIVE_256, 8, 128, asked=3.05, portable=True, memory=MEMORY_OF_ADDITIVE),
    Shape(ADDITIVE_256, 8, 128, HALF_FILLED, asked=4.11, memory=MEMORY_OF_ADDITIVE),
    Shape(ADDITIVE_256, 2, 512, asked=4.14, portable=True, memory=MEMORY_OF_ADDITIVE),
    Shape(ADDITIVE_256, 2, 512, HALF_FILLED, asked=6.53, memory=MEMORY_OF_ADDITIVE),
    Shape(Plan(ADDITIVE, 64, weights=True), 4, 64, HALF_FILLED),
    Shape(HEADS, 4, 1024, HALF_FILLED, asked=2.2, portable=True),
    Shape(HEADS, 8, 128, portable=True),
    Shape(HEADS, 1, 1024, Tq=1),
    Shape(Plan(MULTI_HEAD, 64, 16), 8, 64, HALF_FILLED),
    Shape(Plan(MULTI_HEAD, 256, 4, lengths="", causal=True), 2, 2048, asked=2.0),
    Shape(Plan(MULTI_HEAD, 256, 4, lengths="", window=(128, 128)), 1, 2048),
    Shape(Plan(MULTI_HEAD, 256, 4, lengths=QUERY_LENGTHS), 4, 256, HALF_FILLED),
    Shape(Plan(MULTI_HEAD, 256, 4, weights=True), 2, 256),
    Shape(TRANSFORMER, 8, 128, asked=1.1),
    Shape(TRANSFORMER, 8, 128, HALF_FILLED, asked=1.15),
    Shape(TRANSFORMER, 2, 512, asked=1.5),
    Shape(TRANSFORMER, 2, 512, HALF_FILLED, asked=2.0),
    Shape(Plan(DATES), 1, DATE_CHARACTERS, asked=1.0),
    Shape(Plan(DATES), 64, DATE_CHARACTERS, HALF_FILLED, asked=1.2),
    Shape(Plan(BERT, 256, 4), 2, 512, asked=1.25),
    Shape(Plan(BERT, 256, 4), 2, 512, HALF_FILLED, asked=1.3),
)
QUICK_SHAPES = (SHAPES[0], Shape(ADDITIVE_64, 2, 16, HALF_FILLED, portable=True))


def measure(options: _harness.Options) -> dict[str, Any]:
    cases = []
    for number, (plan, shapes) in enumerate(_by_plan(options.quick)):
        files = _files(plan, options.work / f"plan{number}", any(shape.portable for shape in shapes))
        for shape in shapes:
            cases += race([_case(shape, files)], options.work, **options.pace(rounds=15))
    bars = [] if options.quick else _bars(cases)
    return {"title": "Against Keras's own layers", "cases": cases, "bars": bars}


def _by_plan(quick: bool) -> Iterator[tuple[Plan, list[Shape]]]:
    """The shapes of each model, which is written once; without those whose library is not installed."""
    shapes = [
        shape for shape in (QUICK_SHAPES if quick else SHAPES) if shape.plan.kind != BERT or find_spec("keras_hub")
    ]
    for plan in dict.fromkeys(shape.plan for shape in shapes):
        yield plan, [shape for shape in shapes if shape.plan == plan]


def _files(plan: Plan, folder: Path, portable: bool) -> list[Contestant]:
    """Write the model in every way; one that cannot be written says so in the tables."""
    folder.mkdir()
    ours, theirs = plan.models()
    stock = _models.stock_export(theirs, folder / "theirs.onnx")
    contestants = [
        Contestant(THEIRS, options={"model": str(stock)}),
        _ours(OURS, ours, folder / "ours"),
        _optimized(stock, folder / "optimized.onnx", plan),
    ]
    if ours is not theirs:
        own = _models.stock_export(ours, folder / "ours.onnx")
        # optional, as that of multi-head attention fails where lengths are not those it was traced with
        contestants.append(Contestant(STOCK, options={"model": str(own)}, optional=True))
    if portable:
        contestants.append(_ours(PORTABLE, ours, folder / "portable", lowering="portable"))
    return contestants


def _ours(label: str, model: Any, folder: Path, **options: str) -> Contestant:
    try:
        bundle = export_model(model, folder, progress=False, **options)
    except ParityError:
        raise  # a wrong file is no missing one
    except ExportError as error:
        return Contestant(label, unavailable=str(error))
    return Contestant(label, options={"model": str(bundle.path / "model.onnx")})


def _optimized(stock: Path, file: Path, plan: Plan) -> Contestant:
    """What a careful user makes of Keras's file with the optimizer for Transformers that comes with onnxruntime."""
    from onnxruntime.transformers import optimizer

    try:
        model = optimizer.optimize_model(str(stock), "bert", num_heads=plan.H, hidden_size=plan.D)
        model.save_model_to_file(str(file))
    except Exception as error:  # noqa: BLE001 - whatever it is, the tables say it
        return Contestant(OPTIMIZED, unavailable=f"{type(error).__name__}: {error}")
    return Contestant(OPTIMIZED, options={"model": str(file)}, optional=True)


def _case(shape: Shape, files: list[Contestant]) -> Case:
    there = [
        Contestant(each.label, each.kind, each.options, each.optional, each.unavailable)
        for each in files
        if shape.portable or each.label != PORTABLE
    ]
    inputs = shape.plan.inputs(shape.B, shape.Tq or shape.Tk, shape.Tk, shape.fill)
    facts = {"size": str(shape), "fill": shape.fill, "asked": shape.asked, "memory": shape.memory}
    return Case(inputs, there, facts, THEIRS)


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    named = [
        (f"{case['size']}, {case['fill']}", case, {row["contestant"]: row for row in case["rows"]}) for case in cases
    ]
    speeds = [_faster(rows[OURS]) for _, _, rows in named]
    optimized = [
        row["ms"]["median"] / rows[OURS]["ms"]["median"]
        for _, _, rows in named
        if "ms" in (row := rows[OPTIMIZED]) and "ms" in rows[OURS]
    ]
    shares = [
        rows[OURS]["memory"] / rows[THEIRS]["memory"]
        for _, _, rows in named
        if "ms" in rows[OURS] and rows[THEIRS]["memory"] >= COUNTED
    ]
    return [
        bar(f"the slowest of {len(speeds)} shapes: speed over Keras's layer", _least(speeds), SPEED, at_least=True),
        bar("the slowest: speed over what the optimizer makes of it", _least(optimized), OVER_OPTIMIZED, at_least=True),
        bar(
            f"the largest share of the extra memory of Keras's layer, where that takes {COUNTED} MiB and more",
            max(shares, default=None), MEMORY, at_least=False,
        ),
        *(
            bar(f"{name}: speed over Keras's layer", _faster(rows[OURS]), case["asked"], at_least=True)
            for name, case, rows in named
            if case["asked"] != SPEED
        ),
        *(
            bar(f"{name}, `portable`: speed over Keras's layer", _faster(rows[PORTABLE]), OF_PORTABLE, at_least=True)
            for name, _, rows in named
            if PORTABLE in rows
        ),
        *(
            bar(
                f"{name}: share of the extra memory of Keras's layer",
                rows[OURS]["memory"] / rows[THEIRS]["memory"] if "ms" in rows[OURS] else None, case["memory"],
                at_least=False,
            )
            for name, case, rows in named
            if case["memory"] != MEMORY
        ),
    ]  # fmt: skip


def _faster(row: dict[str, Any]) -> float | None:
    return row["faster"]["median"] if row.get("faster") else None


def _least(values: list[float | None]) -> float | None:
    """The least of some numbers; `None` where one is not known."""
    return None if None in values else min((value for value in values if value is not None), default=None)


if __name__ == "__main__":
    _harness.run("against_keras", __doc__, measure)
