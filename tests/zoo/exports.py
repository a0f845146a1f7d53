"""What an export of a model of the zoo came to: by ours here, by Keras's own in a process that may crash."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from keras_attn_export import ExportError, export_model
from keras_attn_export._model.golden_cases import LARGE, POISONED

from .registry import Architecture

Result = dict[str, Any]
SECONDS = 600


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
    result: Result = {"weights": model.count_params(), "inputs": [described(tensor) for tensor in model.inputs]}
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


def described(tensor: Any) -> str:
    """Return an input's name, its axes and, unless it is float32, its dtype."""
    axes = ", ".join("?" if size is None else str(size) for size in tensor.shape)
    dtype = "" if tensor.dtype == "float32" else f" {tensor.dtype}"
    return f"{tensor.name} ({axes}){dtype}"


def kerass_own(each: Architecture) -> Result:
    """Export a model by Keras's own exporter, in a process of its own, and tell how far its outputs are."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "zoo.keras_exporter", each.name, str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"it took more than {SECONDS} s"}
        if answer.is_file():
            result: Result = json.loads(answer.read_text(encoding="utf-8"))
            return result
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        return {"error": f"its process ended with {done.returncode}: {last}"}
