"""How much accuracy does int8 cost trained models, and how much smaller and faster does it make them?"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from _contestant import Contestant
from _files import SESSION
from _harness import Options
from _race import Case
from _stats import bar, best_speed
from _trained import TRAINED, Arrays, Trained

from keras_attn_export import Bundle, export_model

FLOAT32, DYNAMIC, CALIBRATED = "float32", "int8, dynamic", "int8, calibrated"
ROWS = 8  # of a request
AT_ONCE = 128  # rows that are run for the accuracy
POINTS = 0.5  # of accuracy that may be lost
CONVOLUTIONS, OTHERS = 2.5, 1.3  # times as fast


def int8(options: Options) -> dict[str, Any]:
    """Train each model, export it three ways, count right answers on held-out rows, and race the files."""
    cases = [_case(made(options.quick), options) for made in TRAINED[: 1 if options.quick else None]]
    return {"cases": cases, "bars": list(_bars(cases))}


def _case(trained: Trained, options: Options) -> dict[str, Any]:
    asked = {
        FLOAT32: {},
        DYNAMIC: {"precision": "int8"},
        CALIBRATED: {"precision": "int8", "calibration": trained.seen},
    }
    request = {name: array[:ROWS] for name, array in trained.held_out.items()}
    contestants, files = [], {}
    for label, more in asked.items():
        folder = options.work / trained.name / label
        bundle = export_model(trained.model, folder, sample_inputs=trained.samples, **more)
        file = folder / "model.onnx"
        right = trained.right(_outputs(bundle, trained.held_out))
        files[label] = {"bytes": file.stat().st_size, "right": float(np.mean(right)), "rows": len(right)}
        contestants.append(Contestant(label, SESSION, {"model": str(file)}, computes=label))
    about = bundle.report.precision["calibration"]
    shares = [each["share"] for each in about["outputs"].values() if "differ" not in each]
    facts = {
        "size": trained.name,
        "convolves": trained.convolves,
        "files": files,
        "off": max(shares),
        "float32_layers": about["float32_layers"],
        "int8_layers": len(about["int8_layers"]),
    }
    return options.race(Case(request, contestants, facts, FLOAT32))


def _outputs(bundle: Bundle, inputs: Arrays) -> Arrays:
    count = len(next(iter(inputs.values())))
    parts = [
        bundle.run({name: array[start : start + AT_ONCE] for name, array in inputs.items()})
        for start in range(0, count, AT_ONCE)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def lost(case: dict[str, Any], label: str) -> float:
    """Return the points of accuracy that a file loses."""
    return 100 * (case["files"][FLOAT32]["right"] - case["files"][label]["right"])


def _bars(cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for case in cases:
        yield bar(f"{case['size']}: points of accuracy lost", lost(case, CALIBRATED), POINTS, at_least=False)
    for case in cases:
        asked = CONVOLUTIONS if case["convolves"] else OTHERS
        yield bar(f"{case['size']}: speed over float32", best_speed(case, CALIBRATED), asked)
