"""Content of a report: entries of the manifest, layers, the comparison with Keras, and attention."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._bundle.calibration_text import calibration_lines
from .._bundle.parity import ParityReport
from .._bundle.untrusted_input import golden_cases
from .._standalone import verify
from .._standalone.verify import Arrays, Case, Manifest
from .encoding import bytes_text, count_text, number
from .labels import checked_labels
from .layers import read_layers
from .maps import YOURS, maps_of

MOST_TYPED = 5000  # numbers that a form begins with
Run = Callable[[Mapping[str, Any]], Arrays]


@dataclass(frozen=True)
class Content:
    """What a page is made of.

    Attributes:
        folder: The bundle.
        shown: What the template reads.
        data: What the scripts of the page read, as JSON.
    """

    folder: Path
    shown: dict[str, Any]
    data: dict[str, Any]


def content_of(
    folder: Path,
    manifest: Manifest,
    parity: ParityReport,
    run: Run,
    *,
    inputs: Mapping[str, Any] | None = None,
    labels: Mapping[str, Any] | None = None,
    live: bool = False,
) -> Content:
    """Gather what a page shows of a bundle whose files were checked.

    Args:
        folder: The bundle.
        manifest: Its manifest.
        parity: Its parity report.
        run: Runs the model on inputs, which it checks.
        inputs: Arrays of a user's, whose attention is shown first.
        labels: What ids of inputs and outputs are called, by name.
        live: Whether the page has a form, which begins with an example.

    Raises:
        InputError: `inputs` do not fit the model, or `labels` are none.
        BundleError: A file is not what it should be.
    """
    report = json.loads(parity.to_json())
    called = checked_labels(manifest, labels)
    cases = golden_cases(folder, manifest)
    own = [] if inputs is None else [_own_case(inputs, run, manifest, folder)]
    drawn, left_out = maps_of((*own, *cases), manifest, called)
    first = (own or cases)[0]
    data = {
        "names": [case.name for case in cases],
        "cases": drawn,
        "labels": called,
        "first": {name: _typed(array) for name, array in first.inputs.items()} if live else {},
        "lengths": _lengths(first, manifest),
    }
    shown = {
        "folder": shlex.quote(folder.resolve().name),
        "manifest": manifest,
        "report": report,
        "summary": parity.summary(),
        "version": manifest.versions.get("keras-attn", ""),
        "facts": list(_facts(folder, manifest, report)),
        "layers": read_layers(folder / verify.MODEL, [layer["name"] for layer in manifest.layers]),
        "proof": _proof(manifest, report),
        "rows": _rows(report),
        "coverage": list(_coverage(report)),
        "left_out": left_out,
    }
    return Content(folder, shown, data)


def _own_case(inputs: Mapping[str, Any], run: Run, manifest: Manifest, folder: Path) -> Case:
    outputs = run(inputs)
    verify.check_arrays(f"{folder / verify.MODEL} answers", "output", outputs, manifest.outputs)
    return Case(YOURS, {name: np.asarray(array) for name, array in inputs.items()}, outputs)


def _typed(array: np.ndarray) -> Any:
    """Return the first example for a form, as JSON has it; `None` where nobody would type so many numbers."""
    one = array[:1] if array.ndim else array
    return None if one.size > MOST_TYPED else _as_json(one.tolist())


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _lengths(case: Case, manifest: Manifest) -> dict[str, int]:
    """Return how much of the first example of each sequence is no padding."""
    counted = manifest.lengths
    return {
        spec.name: max(0, int(case.inputs[counted[spec.shape[1]]].flat[0]))
        for spec in manifest.inputs
        if len(spec.shape) == 2 and spec.shape[1] in counted and case.inputs[counted[spec.shape[1]]].size
    }


def _facts(folder: Path, manifest: Manifest, report: Mapping[str, Any]) -> list[tuple[str, str]]:
    def size(pattern: str) -> str:
        return bytes_text(sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file()))

    facts = [
        ("ONNX", f"{size(verify.MODEL + '*')}, opset {manifest.opset}"),
        ("runs on", f"onnxruntime {manifest.lowest_onnxruntime} or newer"),
        ("SavedModel", size("saved_model/**/*")),
        ("precision", manifest.precision),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ("Keras's backend", manifest.backend),
    ]
    facts += [(f"axis {name}", f"a multiple of {step}") for name, step in manifest.multiples.items()]
    facts += [(f"axis {name}", f"static: {why}") for name, why in manifest.static.items()]
    if gains := report.get("precision"):
        facts.append(
            (gains["name"], f"{gains['size_ratio']:.2f} of float32's size, {gains['time_ratio']:.2f} of its time")
        )
        facts += [("int8", line) for line in calibration_lines(gains.get("calibration"))]
    if clone := report.get("float32_clone"):
        policies = ", ".join(clone["policies"])
        facts.append(
            ("given in", f"{policies}; exported in float32, which is {number(float(clone['max_abs']))} from it")
        )
    return facts


def _proof(manifest: Manifest, report: Mapping[str, Any]) -> str:
    limits = manifest.parity["tolerance"]
    more = f", or {limits['relative']:g} relative, {limits['absolute']:g} absolute" if any(limits.values()) else ""
    return (
        f"The ONNX model in onnxruntime ({report['provider']}) and the SavedModel in a process without Keras were "
        f"compared with these outputs. The limit is what rounding does to this model, as measured{more}. "
        "Other inputs were not compared."
    )


def _rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the comparisons, worst first."""
    parts = (("onnxruntime", report["rows"]), ("SavedModel", report.get("saved_model_rows", ())))
    rows = [{**row, "by": by, "share": _share(row["of_limit"])} for by, some in parts for row in some]
    return sorted(rows, key=lambda row: (row["passed"], -row["share"]))


def _share(of_limit: Any) -> float:
    share = float(of_limit)
    return share if math.isfinite(share) else 1e9


def _coverage(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    known = report.get("coverage")
    if not known:
        return []
    told = [
        (f"axis {axis}", "sizes " + ", ".join(map(str, sorted(set(sizes))))) for axis, sizes in known["axes"].items()
    ]
    for name, each in known["inputs"].items():
        moves = each["moves"]
        text = "has one value in all cases" if moves is None else f"moves {', '.join(moves) or 'no output'}"
        if "ids" in each:
            text += f"; {count_text(each.get('ids_seen', 0))} of {count_text(each['ids'])} ids were used"
        if "values" in each:
            text += f"; {each['values']['drawn']}"
        told.append((f"input {name}", text))
    for name, each in known["outputs"].items():
        told.append((f"output {name}", "varies" if each["varies"] else "is the same for all inputs"))
    if known["refused"]:
        told.append(("cases", f"{known['cases']} compared, {known['refused']} refused by Keras itself"))
    return told
