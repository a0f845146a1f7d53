"""Accuracy, size and speed of int8 files of trained models."""

from typing import Any

import numpy as np
from _contestant import Contestant
from _files import SESSION
from _harness import Options
from _race import Case
from _trained import TRAININGS, Arrays, TrainedModel

from keras_attn_export import Bundle, export_model

FLOAT32, DYNAMIC, CALIBRATED = "float32", "int8, dynamic", "int8, calibrated"
REQUEST_ROWS = 8  # rows of a timed request
BATCH_ROWS = 128  # rows of a run that measures the accuracy


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Train each model, export three files, measure their accuracy on held-out rows, and race the files."""
    return [_race_files(train(options.quick), options) for train in TRAININGS[: 1 if options.quick else None]]


def _race_files(trained: TrainedModel, options: Options) -> dict[str, Any]:
    export_options = {
        FLOAT32: {},
        DYNAMIC: {"precision": "int8"},
        CALIBRATED: {"precision": "int8", "calibration": trained.training_rows},
    }
    request = {name: array[:REQUEST_ROWS] for name, array in trained.held_out.items()}
    contestants, facts = [], {}
    for label, arguments in export_options.items():
        folder = options.folder / trained.name / label
        bundle = export_model(trained.model, folder, sample_inputs=trained.samples, **arguments)
        file = folder / "model.onnx"
        is_correct = trained.is_correct(_run_in_batches(bundle, trained.held_out))
        facts[label] = {"accuracy": float(np.mean(is_correct)), "size": file.stat().st_size}
        contestants.append(Contestant(label, SESSION, {"model": str(file)}, result=label))
    result = options.race(Case(request, contestants, trained.name, FLOAT32))
    for row in result["rows"]:
        row_facts = facts[row["contestant"]]
        row["facts"] = row_facts | {"size": row_facts["size"] / facts[FLOAT32]["size"]}
    return result


def _run_in_batches(bundle: Bundle, inputs: Arrays) -> Arrays:
    count = len(next(iter(inputs.values())))
    parts = [
        bundle.run({name: array[start : start + BATCH_ROWS] for name, array in inputs.items()})
        for start in range(0, count, BATCH_ROWS)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
