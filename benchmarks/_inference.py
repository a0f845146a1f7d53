"""Parts of `against_keras.py` on one layer: against TensorFlow, with causal masks and windows, and with more keys."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import _files
from _contestant import Contestant
from _files import OURS, PORTABLE, THEIRS
from _harness import Options
from _in_keras import options_of
from _plans import HALF_FILLED, Plan, Shape
from _race import Case
from _stats import bar, speed

PLAIN = "our layer without blocks, Keras's exporter"

# --------------------------------------------------------------------------- beside TensorFlow

SIZES = {"additive": ((128, 8, 64), (256, 8, 128), (256, 2, 512)), "dot": ((64, 8, 512), (64, 1, 4096))}  # D, B, T


def additive_inference(options: Options) -> dict[str, Any]:
    """Race additive attention in files and in TensorFlow."""
    return {"cases": _beside_tensorflow("additive", options)}


def dot_product_inference(options: Options) -> dict[str, Any]:
    """Race scaled dot-product attention in files and in TensorFlow."""
    return {"cases": _beside_tensorflow("dot", options)}


def _beside_tensorflow(kind: str, options: Options) -> list[dict[str, Any]]:
    cases = []
    for D, B, T in ((8, 2, 16),) if options.quick else SIZES[kind]:
        plan = Plan(kind, D)
        contestants = [*_files_of(plan, options.work / f"{B}x{T}"), *_in_tensorflow(plan)]
        for shape in (Shape(plan, B, T), Shape(plan, B, T, HALF_FILLED)):
            cases.append(options.race(Case(shape.inputs(), contestants, shape.facts(), PLAIN)))
    return cases


def _files_of(plan: Plan, folder: Path) -> list[Contestant]:
    import _models

    folder.mkdir()
    ours = _models.ours(plan)
    return [
        _files.of_keras(PLAIN, _models.ours(plan, query_block_size=None), folder / "plain.onnx"),
        _files.of_ours(OURS, ours, folder / "ours"),
        _files.of_ours(PORTABLE, ours, folder / "portable", lowering="portable"),
    ]


def _in_tensorflow(plan: Plan) -> list[Contestant]:
    return [
        Contestant(f"{layer}, TensorFlow {form}", "_in_keras.inference", options_of(plan, whose, jit), optional=jit)
        for layer, whose in (("our layer", "ours"), ("Keras's layer", "theirs"))
        for form, jit in (("graph", False), ("XLA", True))
    ]


# --------------------------------------------------------------------------- causal masks and windows

REACH = 128  # keys to either side: a window of 256
FULL, CAUSAL, WINDOW = "all keys", "causal", f"window of {2 * REACH}"


def order_of_positions(options: Options) -> dict[str, Any]:
    """Race causal masks and windows against a layer that sees all keys."""
    import _models

    size, length = (8, 64) if options.quick else (64, 4096)
    full = Shape(Plan("dot", size, lengths=""), 1, length)
    plans = {FULL: full.plan, CAUSAL: Plan("dot", size, lengths="", causal=True)}
    plans[WINDOW] = Plan("dot", size, lengths="", window=(REACH, REACH))
    contestants = []
    for name, plan in plans.items():
        ours = _files.of_ours(f"{OURS}, {name}", _models.ours(plan), options.work / name)
        contestants.append(replace(ours, computes=name))
        if name != WINDOW:  # which Keras's layer does not have
            theirs = _files.of_keras(f"{THEIRS}, {name}", _models.theirs(plan), options.work / f"{name}.onnx")
            contestants.append(replace(theirs, computes=name))
    case = options.race(Case(full.inputs(), contestants, full.facts(), f"{OURS}, {FULL}"))
    causal, window = (speed(case, f"{OURS}, {name}") or 0.0 for name in (CAUSAL, WINDOW))
    bars = [
        bar(f"{CAUSAL}: speed over our layer without a mask", causal, 1.6),
        bar(f"{WINDOW}: speed over our layer without a mask", window, 6.0),
        bar(f"{WINDOW}: speed over our causal layer", window / causal, 3.0),
    ]
    return {"cases": [case], "bars": bars}


# --------------------------------------------------------------------------- more keys

KEYS, QUICK_KEYS = (128, 256, 512, 1024, 2048, 4096), (16, 32, 64)


def cost_against_keys(options: Options) -> dict[str, Any]:
    """Race the plain file and ours over ever more keys."""
    D, Tq, keys = (8, 16, QUICK_KEYS) if options.quick else (64, 128, KEYS)
    cases = []
    for plan in (Plan("additive", D), Plan("dot", D)):
        plain, ours, _ = _files_of(plan, options)
        for shape in (Shape(plan, 1, Tk, Tq=Tq) for Tk in keys):
            facts = {**shape.facts(), "layer": str(plan), "keys": shape.Tk}
            cases.append(options.race(Case(shape.inputs(), [plain, ours], facts, PLAIN)))
    return {"cases": cases}
