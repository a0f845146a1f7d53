"""What does a training step of additive attention cost, plain and in blocks of queries?"""

from typing import Any

import _harness
import _models
import numpy as np
from _process import Contestant
from _race import Case, race
from _sizes import ADDITIVE, HALF_FILLED, Size, random_inputs
from _stats import bar

SIZE = Size(ADDITIVE, B=2, Tq=512, Tk=512, D=256, U=256)
QUICK_SIZE = Size(ADDITIVE, B=2, Tq=16, Tk=16, D=8, U=8)
PLAIN, BLOCKS = "query_block_size=None", 'query_block_size="auto"'
TIME = 1.05  # over that of the plain form
MEMORY = {"graph": 1 / 8, "jit_compile": 1 / 5}  # of the plain form's


def measure(options: _harness.Options) -> dict[str, Any]:
    size = QUICK_SIZE if options.quick else SIZE
    inputs = random_inputs(size, HALF_FILLED)
    target = np.random.default_rng(2).standard_normal((size.B, size.Tq, size.D), dtype="float32")
    weights = str(options.work / "weights.npz")
    np.savez(weights, *_models.attention_model(size).get_weights())
    contestants = [
        *_keras(size, weights, "graph"),
        *_keras(size, weights, "jit_compile"),
        *_torch(size, weights, options.quick),
    ]
    facts = {"size": str(size), "shape": size.to_json(), "elements": size.elements, "fill": HALF_FILLED}
    case = Case({**inputs, "target": target}, contestants, facts, f"{PLAIN}, graph")
    cases = race([case], options.work, **options.pace())
    bars = [] if options.quick else _bars(cases[0])
    return {"title": "Additive attention, training step", "cases": cases, "bars": bars}


def _keras(size: Size, weights: str, form: str) -> list[Contestant]:
    shared = {"size": size.to_json(), "weights": weights, "jit": form == "jit_compile"}
    try:
        _models.attention_model(size, query_block_size="auto")
        missing = ""
    except ValueError as error:  # a version without it
        missing = str(error)
    return [
        Contestant(f"{PLAIN}, {form}", "keras training", {**shared, "query_block_size": None}),
        Contestant(f"{BLOCKS}, {form}", "keras training", {**shared, "query_block_size": "auto"}, unavailable=missing),
    ]


def _torch(size: Size, weights: str, quick: bool) -> list[Contestant]:
    shared = {"size": size.to_json(), "weights": weights}
    forms = {"PyTorch eager": False, "PyTorch torch.compile": True}
    return [
        Contestant(label, "torch training", {**shared, "compile": compiled}, optional=compiled)
        for label, compiled in forms.items()
        if not (compiled and quick)
    ]


def _bars(case: dict[str, Any]) -> list[dict[str, Any]]:
    bars = []
    rows = {row["contestant"]: row for row in case["rows"]}
    for form, limit in MEMORY.items():
        plain, blocks = rows[f"{PLAIN}, {form}"], rows[f"{BLOCKS}, {form}"]
        known = "ms" in plain and "ms" in blocks
        time = blocks["ms"]["median"] / plain["ms"]["median"] if known else None
        memory = blocks["memory"] / plain["memory"] if known else None
        bars += [
            bar(f"{form}: time over the plain form's", time, TIME, at_least=False),
            bar(f"{form}: share of the plain form's extra memory", memory, limit, at_least=False),
        ]
    return bars


if __name__ == "__main__":
    _harness.run("additive_training", __doc__, measure)
