"""How fast are whole models without our layers, exported by us, against those of Keras's exporter?"""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _files
import numpy as np
from _contestant import Contestant
from _files import OURS
from _harness import Options
from _race import Case
from _stats import bar, best_speed, rows_of

THEIRS = "Keras's exporter"
OPTIMIZED, SLIM = "Keras's exporter, then onnxruntime's optimizer", "Keras's exporter, then onnxslim"
SLOWEST, MEAN = 0.99, 1.2  # speeds that are asked: of every model, and of all of them
OVER_PRODUCTS = 1.2  # times what products alone take, where they are the larger part
QUICK = ("GRU over words", "additive attention of Keras")
MANY = 8  # examples
ROUNDS = 12


def models(options: Options) -> dict[str, Any]:
    """Race our file of every architecture against Keras's, and what can be made of that without us."""
    import _architectures

    cases = []
    for number, (name, each) in enumerate(_architectures.ARCHITECTURES.items()):
        if not find_spec(each.package) or (options.quick and name not in QUICK):
            continue
        model, folder = each.model(), options.work / f"model{number}"
        folder.mkdir()
        files = list(_files_of(model, each, folder))
        print(f"{name}: {', '.join(file.label for file in files if not file.unavailable)}", flush=True)
        for batch, length in _sizes(each.lengths, options.quick):
            inputs = _architectures.inputs_of(model, batch, length) | each.lost
            facts = {"size": name, "fill": f"B{batch}" + (f" T{length}" if length else "")}
            found = options.race(Case(inputs, files, facts, THEIRS), ROUNDS)
            cases.append(found | {"products": _products(options, inputs, files[0])})
    return {"cases": cases, "bars": aims_of(cases)}


def _sizes(lengths: tuple[int, ...], quick: bool) -> list[tuple[int, int]]:
    """Return many examples of the shortest length, and one of the longest."""
    return [(1, 16)] if quick else [(MANY, lengths[0]), (1, lengths[-1])]


def _files_of(model: Any, architecture: Any, folder: Path) -> Iterator[Contestant]:
    """Write the model in every way; of ours, the first, nothing is excused."""
    yield _files.of_ours(OURS, model, folder / "ours")
    theirs = _files.mended(_files.of_keras(THEIRS, model, folder / "theirs.onnx", optional=True))
    yield theirs
    yield _files.optimized(OPTIMIZED, theirs, model_type=architecture.optimizer)
    yield _files.slimmed(SLIM, theirs)


def _products(options: Options, inputs: dict[str, np.ndarray], ours: Contestant) -> dict[str, float]:
    """Return the milliseconds that a run of our file spends in products, and in attention and recurrence."""
    profiled = replace(ours, kind="_files.profiled", options={**ours.options, "runs": 7})
    (row,) = options.race(Case(inputs, [profiled], {}), rounds=0)["rows"]
    return {"products": row["products"], "attention and recurrence": row["fused"]}


def over_products(case: dict[str, Any]) -> float:
    """Return the time of our file over that of its products, which includes attention and recurrent layers."""
    return float(rows_of(case)[OURS]["ms"]["min"] / sum(case["products"].values()))


def products_rule(case: dict[str, Any]) -> bool:
    """Return whether matrix products and convolutions take more than half of the time."""
    return bool(case["products"]["products"] > rows_of(case)[OURS]["ms"]["min"] / 2)


def aims_of(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is aimed at, over the cases whose peer runs, by the fastest run of each file."""
    speeds = [found for case in cases if (found := best_speed(case, OURS))]
    over_others = [
        found for case in cases for label in (OPTIMIZED, SLIM) if (found := best_speed(case, OURS, over=label))
    ]
    ruled = [over_products(case) for case in cases if products_rule(case)]
    text = "total time relative to products, attention and recurrence, worst size where products take more than half"
    return [
        bar(f"the slowest of {len(speeds)} sizes: speed over Keras's file", speeds, SLOWEST),
        bar("geometric mean of these sizes: speed over Keras's file", _mean(speeds), MEAN),
        bar(
            "the slowest size: speed over Keras's file after onnxruntime's optimizer or onnxslim", over_others, SLOWEST
        ),
        bar(text, ruled, OVER_PRODUCTS, at_least=False),
    ]


def _mean(speeds: list[float]) -> float | None:
    return float(np.exp(np.mean(np.log(speeds)))) if speeds else None
