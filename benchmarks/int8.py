"""Accuracy, size and speed of int8 files of trained models."""

from typing import Any

import numpy as np
from _contestant import Contestant
from _files import SESSION
from _harness import Options
from _race import Case
from _trained import TRAINED, Arrays, Trained

from keras_attn_export import Bundle, export_model

FLOAT32, DYNAMIC, CALIBRATED = "float32", "int8, dynamic", "int8, calibrated"
ROWS = 8  # of a request
AT_ONCE = 128  # rows that are run for the accuracy


def cases(options: Options) -> list[dict[str, Any]]:
    """Train each model, export three files, count right answers on held-out rows, and race the files."""
    return [_case(train(options.quick), options) for train in TRAINED[: 1 if options.quick else None]]


def _case(trained: Trained, options: Options) -> dict[str, Any]:
    asked = {
        FLOAT32: {},
        DYNAMIC: {"precision": "int8"},
        CALIBRATED: {"precision": "int8", "calibration": trained.seen},
    }
    request = {name: array[:ROWS] for name, array in trained.held_out.items()}
    contestants, facts = [], {}
    for label, more in asked.items():
        folder = options.work / trained.name / label
        bundle = export_model(trained.model, folder, sample_inputs=trained.samples, **more)
        file = folder / "model.onnx"
        right = trained.right(_outputs(bundle, trained.held_out))
        facts[label] = {"accuracy": float(np.mean(right)), "size": file.stat().st_size}
        contestants.append(Contestant(label, SESSION, {"model": str(file)}, computes=label))
    result = options.race(Case(request, contestants, trained.name, FLOAT32))
    for row in result["rows"]:
        fact = facts[row["contestant"]]
        row["facts"] = fact | {"size": fact["size"] / facts[FLOAT32]["size"]}
    return result


def _outputs(bundle: Bundle, inputs: Arrays) -> Arrays:
    count = len(next(iter(inputs.values())))
    parts = [
        bundle.run({name: array[start : start + AT_ONCE] for name, array in inputs.items()})
        for start in range(0, count, AT_ONCE)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
