"""What an export of a model of the zoo came to: by ours, and by Keras's own exporter on the same inputs."""

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnxruntime as ort

from keras_attn_export import ExportError, export_model
from keras_attn_export._format.names import Case
from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._golden_cases.golden_cases import LARGE_VALUES, POISONED
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature

from . import ZOO

Result = dict[str, Any]
KERAS = "keras"
FIRST = 200  # characters of an error


def tried(name: str, way: str) -> Result:
    """Export a model in one way, and tell how far its outputs are from Keras's."""
    each = ZOO[name]
    model, samples = each.model(), each.sample_inputs()
    with tempfile.TemporaryDirectory() as folder:
        if way == KERAS:
            return kerass_own(model, samples, Path(folder) / "model.onnx")
        result: Result = {"weights": model.count_params(), "inputs": []}
        for spec in build_signature(model, None).inputs:
            axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
            result["inputs"].append(f"{spec.name} ({axes})" + (f" {spec.dtype}" if spec.dtype != "float32" else ""))
        try:
            rows = export_model(model, Path(folder) / "bundle", sample_inputs=samples, precision=way).report.rows
        except ExportError as error:
            return result | {"error": said(error)}
    usual = [row.max_rel for row in rows if row.case not in (LARGE_VALUES, POISONED)]
    return result | {"of_limit": max(row.of_limit for row in rows), "max_rel": max(usual)}


def kerass_own(model: keras.Model, samples: Any, file: Path) -> Result:
    """Compare on the inputs of our golden cases, but for the large and the padded."""
    # which calls the model, as the export needs
    found = generate_golden_cases(build_signature(model, samples), Options())
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        model.export(str(file), format="onnx", verbose=False)
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"error": f"does not {'load' if file.exists() else 'export'}: {said(error)}"}
    return compared(session, [case for case in found.cases if case.name not in (LARGE_VALUES, POISONED)])


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
    """Return the largest difference over the largest magnitude; infinite where the shape is another."""
    if ours.shape != expected.shape:
        return float("inf")
    ours, expected = ours.astype("float64"), expected.astype("float64")
    apart = np.abs(ours - expected).max(initial=0)
    return float(apart / max(np.abs(expected).max(initial=0), 1e-30)) if apart else 0.0


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:FIRST]}"
