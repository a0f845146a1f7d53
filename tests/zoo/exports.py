"""What an export of a model of the zoo came to: by ours here, by Keras's own in a process that may crash.

It is kept in artifacts/zoo, a file a model.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_attn_export import ExportError, export_model
from keras_attn_export._model.golden_cases import LARGE, POISONED
from keras_attn_export._model.signature import InputSpec, model_signature

from .registry import Architecture

Result = dict[str, Any]
KERAS = "keras"
RESULTS = Path(__file__).resolve().parents[2] / "artifacts" / "zoo"


def ways(each: Architecture) -> list[tuple[str, dict[str, str]]]:
    """Return the exports of a model that are tried: a name, and options of `export_model`."""
    found: list[tuple[str, dict[str, str]]] = [("float32", {})]
    if each.auto:
        found.append(("auto", {"lowering": "auto"}))
    return found + [(precision, {"precision": precision}) for precision in each.precisions]


def ours(each: Architecture, options: dict[str, str], seed: int = 0) -> Result:
    """Export a model with weights of this seed, and tell how far its outputs are from Keras's."""
    start = time.perf_counter()
    model = each.model(seed)
    result: Result = {
        "weights": model.count_params(),
        "inputs": [described(spec) for spec in model_signature(model, None).inputs],
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = export_model(model, Path(folder) / "bundle", sample_inputs=each.sample_inputs(), **options).report
        except ExportError as error:
            result |= {"error": f"{type(error).__name__}: {error}"}
        else:
            rows = report.rows
            usual = [row.max_rel for row in rows if row.case not in (LARGE, POISONED)]
            largest = {"of_limit": max(row.of_limit for row in rows), "max_rel": max(usual)}
            result |= {"cases": len({row.case for row in rows}), "refused": report.refused, **largest}
    return result | {"seconds": round(time.perf_counter() - start, 1)}


def described(spec: InputSpec) -> str:
    """Return an input's name, its axes and, unless it is float32, its dtype."""
    axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    dtype = "" if spec.dtype == "float32" else f" {spec.dtype}"
    return f"{spec.name} ({axes}){dtype}"


def kept(name: str) -> dict[str, Result]:
    """Return what came of a model, by the way it was tried."""
    file = RESULTS / f"{name}.json"
    found: dict[str, Result] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def keep(name: str, way: str, result: Result) -> None:
    """Add a result to those of a model, and show it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**kept(name), way: result}, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{name}: {way}: {result}", flush=True)


def kerass_own(names: Sequence[str]) -> None:
    """Export models by Keras's own exporter in a process that may crash: another goes on after the model it was at."""
    left = list(names)
    while left:
        for name in left:
            forget(name, KERAS)
        done = subprocess.run(
            [sys.executable, "-m", "zoo.keras_exporter", *left], stderr=subprocess.PIPE, text=True, check=False
        )
        left = [name for name in left if KERAS not in kept(name)]
        if left:
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            keep(left.pop(0), KERAS, {"error": f"its process ended with {done.returncode}: {last}"})


def forget(name: str, way: str) -> None:
    """Take a result back, to be made again."""
    if way in (results := kept(name)):
        del results[way]
        (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
