"""Exports models of the zoo by Keras's own exporter and runs the files: python -m zoo.keras_exporter NAME....

The inputs are those that our export compares on, of several batch sizes and lengths, but for the large and the padded.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from keras_attn_export._model.golden_cases import LARGE, POISONED, golden_cases
from keras_attn_export._model.signature import model_signature
from keras_attn_export._standalone.verify import Case

from . import ZOO
from .exports import KERAS, keep

FIRST = 200  # characters of an error


def exported(name: str) -> dict[str, Any]:
    """Return what came of it: what failed, or the number of cases that run and the largest relative difference."""
    each = ZOO[name]
    model, samples = each.model(), each.sample_inputs()
    found = golden_cases(model, model_signature(model, samples), samples)  # which calls the model, as the export needs
    cases = [case for case in found.cases if case.name not in (LARGE, POISONED)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        try:
            model.export(str(file), format="onnx", verbose=False)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return {"error": f"does not export: {said(error)}"}
        try:
            session = ort.InferenceSession(str(file), options(), providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return {"error": f"does not load: {said(error)}"}
        return compared(session, cases)


def options() -> ort.SessionOptions:
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    return quiet


def compared(session: ort.InferenceSession, cases: list[Case]) -> dict[str, Any]:
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
        expected = [case.outputs[key] for key in case.outputs]
        largest = max(largest, *(difference(*pair) for pair in zip(outputs, expected, strict=True)))
    return {"cases": len(cases), "failed": failed, "max_rel": largest}


def difference(ours: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference over the largest magnitude; infinite where shape or kind is another."""
    if ours.shape != expected.shape:
        return float("inf")
    apart = np.abs(ours.astype("float64") - expected.astype("float64")).max(initial=0)
    return float(apart / max(np.abs(expected.astype("float64")).max(initial=0), 1e-30)) if apart else 0.0


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:FIRST]}"


if __name__ == "__main__":
    for chosen in sys.argv[1:]:
        keep(chosen, KERAS, exported(chosen))
