"""What does an export take of time and memory, against the bytes of weights?"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import _harness
from _stats import bar

SCRIPT = Path(__file__).with_name("_export_worker.py")
MB = 10**6
CASES = (
    ("one layer", MB // 10),
    ("encoder", 10 * MB),
    ("encoder", 50 * MB),
    ("encoder", 200 * MB),
    ("convolutions", 50 * MB),
)
QUICK_CASES = (("one layer", MB // 10),)
EXPORTERS = {"keras": "Keras's own exporter", "ours": "ours: `export_model`, with the proof"}
RUNS = 3  # of which the one with the median time counts


def measure(options: _harness.Options) -> dict[str, Any]:
    cases = []
    for model, weights in QUICK_CASES if options.quick else CASES:
        rows = [_row(by, model, weights, options) for by in EXPORTERS]
        cases.append({"model": model, "weights": rows[0].pop("weights"), "rows": rows})
        assert rows[1].pop("weights") == cases[-1]["weights"]
    return {"title": "What an export costs", "cases": cases, "bars": [] if options.quick else _bars(cases)}


def _row(by: str, model: str, weights: int, options: _harness.Options) -> dict[str, Any]:
    """Return the run with the median time."""
    runs = [
        _run({"by": by, "model": model, "weights": weights}, options.work / f"{by} {model} {weights} {number}")
        for number in range(1 if options.quick else RUNS)
    ]
    return {"contestant": EXPORTERS[by], **sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]}


def _run(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    file = folder / "spec.json"
    file.write_text(json.dumps({**spec, "folder": str(folder)}), encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(file)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{spec['by']}, {spec['model']}: {done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    largest, smallest = (choose(cases, key=lambda case: case["weights"]) for choose in (max, min))
    times = {id(case): case["rows"][1]["seconds"] / case["rows"][0]["seconds"] for case in (largest, smallest)}
    memory = largest["rows"][1]["memory"]
    return [
        bar("one layer: time of Keras's exporter, times", times[id(smallest)], 3.0, at_least=False),
        bar("most weights: time of Keras's exporter, times", times[id(largest)], 2.0, at_least=False),
        bar("most weights: memory, GB", memory / 1e9, 3 * largest["weights"] / 1e9 + 1.5, at_least=False),
    ]


if __name__ == "__main__":
    _harness.run("export_cost", __doc__, measure)
