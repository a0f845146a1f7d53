"""Time and memory of an export, for models with few and many weights.

The contestants, which are the implementations to compare, are Keras's exporter and `export_model`. A race runs each
contestant in its own worker process. With `rounds=0` it measures only the seconds and the memory of the export.
"""

from typing import Any

from _contestant import Contestant
from _harness import Options
from _race import Case

MB = 10**6
MODELS = (  # pairs of a name and the bytes of all weights
    ("one layer", MB // 10),
    ("encoder", 10 * MB),
    ("encoder", 50 * MB),
    ("encoder", 200 * MB),
    ("convolutions", 50 * MB),
)
KERAS, OURS = "Keras's exporter", "`export_model`, with its check"
REPEATS = 3  # exports of each model, of which the one with the median time counts


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Export each model with both contestants in worker processes, and return the measurements."""
    results = []
    for model, weight_bytes in MODELS[: 1 if options.quick else None]:
        export_options = {"model": model, "weights": weight_bytes, "runs": 1}
        contestants = [
            Contestant(KERAS, "_export.build_keras_export", export_options, optional=True),
            Contestant(OURS, "_export.build_checked_export", export_options),
        ]
        no_inputs: dict[str, Any] = {}  # an export needs no arrays
        case = Case(no_inputs, contestants, f"{model}, {weight_bytes / MB:g} MB of weights")
        races = [options.race(case, rounds=0) for _ in range(1 if options.quick else REPEATS)]
        rows_by_contestant = zip(*(race["rows"] for race in races), strict=True)
        # `peer` is the contestant that the others are compared with.
        rows = [_select_median_export(rows) for rows in rows_by_contestant]
        results.append({"case": case.name, "peer": KERAS, "rows": rows})
    return results


def _select_median_export(rows: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the seconds and the memory in GB of the export with the median time; failed exports count as slowest."""
    row = sorted(rows, key=lambda row: row.get("seconds", float("inf")))[len(rows) // 2]
    if "seconds" not in row:
        return row
    # `memory` is the increase during the export. `child_memory` is the peak of the export's largest child process.
    peak_gb, child_gb = (row["initial_memory"] + row["memory"]) / 1e9, row["child_memory"] / 1e9
    measured = {"seconds": row["seconds"], "peak_gb": peak_gb, "child_gb": child_gb}
    return {"contestant": row["contestant"], "facts": measured}
