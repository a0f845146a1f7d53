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
LARGE = 50 * MB  # from which there is one run, as it takes minutes
SECONDS = 300  # that an export may take; none of ours came near


def measure(options: _harness.Options) -> dict[str, Any]:
    cases = []
    for model, weights in QUICK_CASES if options.quick else CASES:
        rows = [_row(by, model, weights, options) for by in EXPORTERS]
        (of_model,) = {row.pop("weights") for row in rows if "failed" not in row}
        cases.append({"model": model, "weights": of_model, "rows": rows})
    return {"title": "What an export costs", "cases": cases, "bars": [] if options.quick else _bars(cases)}


def _row(by: str, model: str, weights: int, options: _harness.Options) -> dict[str, Any]:
    """Return the run with the median time, or why Keras's exporter came to no end."""
    runs = [
        _run({"by": by, "model": model, "weights": weights}, options.work / f"{by} {model} {weights} {number}")
        for number in range(1 if options.quick or weights >= LARGE else RUNS)
    ]
    if failed := next((run for run in runs if "failed" in run), None):
        return {"contestant": EXPORTERS[by], **failed}
    return {"contestant": EXPORTERS[by], **sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]}


def _run(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    file = folder / "spec.json"
    file.write_text(json.dumps({**spec, "folder": str(folder)}), encoding="utf-8")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(file)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return _failed(spec, f"not done in {SECONDS} s")
    if done.returncode != 0:
        return _failed(spec, f"its process ended with {done.returncode}", done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _failed(spec: dict[str, Any], why: str, said: str = "") -> dict[str, Any]:
    """Return the row of an exporter that is not ours; ours must not fail."""
    if spec["by"] == "ours":
        raise RuntimeError(f"{spec['model']}: {why} {said[-3000:]}")
    return {"failed": why}


def _bars(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    largest, smallest = (choose(cases, key=lambda case: case["weights"]) for choose in (max, min))
    memory = largest["rows"][1]["memory"]
    return [
        bar("one layer: time of Keras's exporter, times", _times(smallest), 3.0, at_least=False),
        bar("most weights: time of Keras's exporter, times", _times(largest), 2.0, at_least=False),
        bar("most weights: memory, GB", memory / 1e9, 3 * largest["weights"] / 1e9 + 1.5, at_least=False),
    ]


def _times(case: dict[str, Any]) -> float | None:
    keras, ours = case["rows"]
    return None if "failed" in keras else float(ours["seconds"] / keras["seconds"])


if __name__ == "__main__":
    _harness.run("export_cost", __doc__, measure)
