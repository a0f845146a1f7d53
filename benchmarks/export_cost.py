"""How much time and memory does an export take, for models with few and many weights?"""

from typing import Any

from _contestant import Contestant
from _harness import Options
from _race import Case
from _stats import bar

MB = 10**6
MODELS = (
    ("one layer", MB // 10),
    ("encoder", 10 * MB),
    ("encoder", 50 * MB),
    ("encoder", 200 * MB),
    ("convolutions", 50 * MB),
)
KERAS, OURS = "Keras's exporter", "`export_model`, with its check"
RUNS = 3  # of which the one with the median time counts


def export_cost(options: Options) -> dict[str, Any]:
    """Export each model in fresh processes."""
    cases = []
    for model, weights in MODELS[: 1 if options.quick else None]:
        size = {"model": model, "weights": weights, "runs": 1}
        keras = Contestant(KERAS, "_export.by_keras", size, optional=True)
        case = Case({}, [keras, Contestant(OURS, "_export.by_ours", size)], {})
        runs = [options.race(case, rounds=0)["rows"] for _ in range(1 if options.quick else RUNS)]
        cases.append({"model": model, "rows": [_median(rows) for rows in zip(*runs, strict=True)]})
    return {"cases": cases, "bars": _bars(cases)}


def _median(runs: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the run with the median time, or one that did not finish."""
    return sorted(runs, key=lambda run: run.get("seconds", float("inf")))[len(runs) // 2]


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    largest, smallest = (choose(cases, key=lambda case: case["rows"][1]["weights"]) for choose in (max, min))
    ours = largest["rows"][1]
    memory, most = (ours["before"] + ours["memory"]) / 1e9, 3 * ours["weights"] / 1e9 + 1.5
    return [
        bar("one layer: time relative to Keras's exporter", _times(smallest), 3.0, at_least=False),
        bar("most weights: time relative to Keras's exporter", _times(largest), 2.0, at_least=False),
        bar("most weights: memory, GB", memory, most, at_least=False),
    ]


def _times(case: dict[str, Any]) -> float | None:
    keras, ours = case["rows"]
    return None if "unavailable" in keras else float(ours["seconds"] / keras["seconds"])
