"""Exports of one model of the zoo, by `export_model` and by Keras's own exporter, compared on the same inputs."""

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
KERAS_EXPORTER = "keras"
MAX_ERROR_LENGTH = 200


def measure_export(name: str, variant: str) -> Result:
    """Export a model in a precision or by Keras's exporter, and return the differences of its outputs from Keras."""
    architecture = ZOO[name]
    model, samples = architecture.build_model(), architecture.draw_sample_inputs()
    with tempfile.TemporaryDirectory() as folder:
        if variant == KERAS_EXPORTER:
            return measure_keras_exporter(model, samples, Path(folder) / "model.onnx")
        result: Result = {"weights": model.count_params(), "inputs": []}
        for spec in build_signature(model, None).inputs:
            axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
            result["inputs"].append(f"{spec.name} ({axes})" + (f" {spec.dtype}" if spec.dtype != "float32" else ""))
        try:
            report = export_model(model, Path(folder) / "bundle", sample_inputs=samples, precision=variant).report
        except ExportError as error:
            return result | {"error": describe_error(error)}
    differences = [row.max_rel for row in report.rows if row.case not in (LARGE_VALUES, POISONED)]
    return result | {"of_limit": max(row.of_limit for row in report.rows), "max_rel": max(differences)}


def measure_keras_exporter(model: keras.Model, samples: Any, file: Path) -> Result:
    """Export by Keras, and compare the outputs for our golden cases without large values and poisoned padding."""
    # Before the export: the generation calls the model, and Keras exports only models that were called.
    cases = generate_golden_cases(build_signature(model, samples), Options()).cases
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        model.export(str(file), format="onnx", verbose=False)
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - every error is a result
        return {"error": f"does not {'load' if file.exists() else 'export'}: {describe_error(error)}"}
    return compare_with_keras(session, [case for case in cases if case.name not in (LARGE_VALUES, POISONED)])


def compare_with_keras(session: ort.InferenceSession, cases: list[Case]) -> Result:
    """Run the cases. Outputs are matched by order, and so are inputs if the file does not have the model's names."""
    names = [tensor.name for tensor in session.get_inputs()]
    errors, max_difference = [], 0.0
    for case in cases:
        has_names = set(names) == set(case.inputs)
        feeds = case.inputs if has_names else dict(zip(names, case.inputs.values(), strict=False))
        try:
            outputs = session.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - every error is a result
            errors.append(f"case `{case.name}`: {describe_error(error)}")
            continue
        pairs = zip(outputs, case.outputs.values(), strict=True)
        max_difference = max(max_difference, *(relative_difference(*pair) for pair in pairs))
    return {"cases": len(cases), "failed": errors, "max_rel": max_difference}


def relative_difference(output: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference divided by the largest magnitude, or infinity if the shapes differ."""
    if output.shape != expected.shape:
        return float("inf")
    output, expected = output.astype("float64"), expected.astype("float64")
    difference = np.abs(output - expected).max(initial=0)
    return float(difference / max(np.abs(expected).max(initial=0), 1e-30)) if difference else 0.0


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_ERROR_LENGTH]}"
