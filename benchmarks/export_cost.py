"""Time and memory of an export, for models with few and many weights."""

from typing import Any

from _contestant import Contestant
from _harness import Options
from _race import Case

MB = 10**6
MODELS = (
    ("one layer", MB // 10),
    ("encoder", 10 * MB),
    ("encoder", 50 * MB),
    ("encoder", 200 * MB),
    ("convolutions", 50 * MB),
)
KERAS, OURS = "Keras's exporter", "`export_model`, with its check"
RUNS = 3  # the run with the median time counts


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Export each model in worker processes."""
    results = []
    for model, weights in MODELS[: 1 if options.quick else None]:
        size = {"model": model, "weights": weights, "runs": 1}
        contestants = [
            Contestant(KERAS, "_export.build_keras_export", size, optional=True),
            Contestant(OURS, "_export.build_checked_export", size),
        ]
        case = Case({}, contestants, f"{model}, {weights / MB:g} MB of weights")
        runs = [options.race(case, rounds=0) for _ in range(1 if options.quick else RUNS)]
        rows = [_select_median_run(rows) for rows in zip(*(run["rows"] for run in runs), strict=True)]
        results.append({"case": case.name, "peer": KERAS, "rows": rows})
    return results


def _select_median_run(runs: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the run with the median time and its memory in GB; a failed export counts as the slowest."""
    run = sorted(runs, key=lambda run: run.get("seconds", float("inf")))[len(runs) // 2]
    if "seconds" not in run:
        return run
    peak, child = (run["initial_memory"] + run["memory"]) / 1e9, run["child_memory"] / 1e9
    facts = {"seconds": run["seconds"], "peak_gb": peak, "child_gb": child}
    return {"contestant": run["contestant"], "facts": facts}
