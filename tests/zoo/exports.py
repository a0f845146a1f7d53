"""What an export of a model of the zoo came to: by ours, and by Keras's own exporter on the same inputs."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from keras_attn_export import ExportError, export_model
from keras_attn_export._model.golden_cases import LARGE, POISONED, golden_cases
from keras_attn_export._model.signature import InputSpec, model_signature
from keras_attn_export._standalone.verify import Case

from . import ZOO
from .registry import Architecture

Result = dict[str, Any]
KERAS = "keras"
FIRST = 200  # characters of an error


def ways(each: Architecture) -> list[tuple[str, dict[str, str]]]:
    """Return the exports of a model that are tried: a name, and options of `export_model`."""
    return [("float32", {}), *((precision, {"precision": precision}) for precision in each.precisions)]


def tried(name: str, way: str, seed: int) -> Result:
    """Export a model with weights of this seed in one way, and tell how far its outputs are from Keras's."""
    start, each = time.perf_counter(), ZOO[name]
    with tempfile.TemporaryDirectory() as folder:
        result = kerass_own(each, Path(folder), seed) if way == KERAS else ours(each, way, Path(folder), seed)
    return result | {"seconds": round(time.perf_counter() - start, 1)}


def ours(each: Architecture, way: str, folder: Path, seed: int) -> Result:
    model, options = each.model(seed), dict(ways(each))[way]
    inputs = [described(spec) for spec in model_signature(model, None).inputs]
    result: Result = {"weights": model.count_params(), "inputs": inputs}
    try:
        report = export_model(model, folder / "bundle", sample_inputs=each.sample_inputs(), **options).report
    except ExportError as error:
        return result | {"error": f"{type(error).__name__}: {error}"}
    rows = report.rows
    usual = [row.max_rel for row in rows if row.case not in (LARGE, POISONED)]
    largest = {"of_limit": max(row.of_limit for row in rows), "max_rel": max(usual)}
    return result | {"cases": len({row.case for row in rows}), "refused": report.refused, **largest}


def described(spec: InputSpec) -> str:
    """Return an input's name, its axes and, unless it is float32, its dtype."""
    axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    dtype = "" if spec.dtype == "float32" else f" {spec.dtype}"
    return f"{spec.name} ({axes}){dtype}"


def kerass_own(each: Architecture, folder: Path, seed: int) -> Result:
    """Compare on the inputs of our golden cases, but for the large and the padded."""
    model, samples, file = each.model(seed), each.sample_inputs(), folder / "model.onnx"
    found = golden_cases(model, model_signature(model, samples), samples)  # which calls the model, as the export needs
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        model.export(str(file), format="onnx", verbose=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"error": f"does not export: {said(error)}"}
    try:
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"error": f"does not load: {said(error)}"}
    return compared(session, [case for case in found.cases if case.name not in (LARGE, POISONED)])


def compared(session: ort.InferenceSession, cases: list[Case]) -> Result:
    """Run the cases; inputs go by name where the names are kept, otherwise by their order, as outputs do."""
    names = [each.name for each in session.get_inputs()]
    failed, largest = [], 0.0
    for case in cases:
        kept = set(names) == set(case.inputs)
        feeds = case.inputs if kept else dict(zip(names, case.inputs.values(), strict=False))
        try:
            outputs = session.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            failed.append(f"case `{case.name}`: {said(error)}")
            continue
        largest = max(largest, *(difference(*pair) for pair in zip(outputs, case.outputs.values(), strict=True)))
    return {"cases": len(cases), "failed": failed, "max_rel": largest}


def difference(ours: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest magnitude; infinite where shape or kind is another."""
    if ours.shape != expected.shape:
        return float("inf")
    apart = np.abs(ours.astype("float64") - expected.astype("float64")).max(initial=0)
    return float(apart / max(np.abs(expected.astype("float64")).max(initial=0), 1e-30)) if apart else 0.0


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:FIRST]}"
