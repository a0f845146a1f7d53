"""Convert a verified float32 ONNX file to another precision, and measure what that costs and gains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._bundle.parity import ParityReport, ParityRow, compared
from .._graphs.external_data import DATA
from .._graphs.onnx_file import describe, read, write
from .._graphs.traced import Traced
from .._options import Options
from .._progress import Progress
from .._standalone import verify
from .._standalone.verify import Case
from .float16 import to_float16
from .gains import gains, top1
from .int8 import to_int8


def converted(
    folder: Path, report: ParityReport, cases: Sequence[Case], options: Options, step: Progress
) -> ParityReport:
    """Replace a bundle's float32 ONNX file by one in another precision, and compare that one with Keras in turn.

    Args:
        folder: The bundle that is being written.
        report: The report of its float32 file, all of which passed.
        cases: The golden cases, with what rounding does in this precision; they replace those of the bundle.
        options: The precision, `"float16"` or `"int8"`, and the tolerance for the converted file.
        step: Is told what is being done.

    Returns:
        The report with the rows of the converted file, and with its `precision`.

    Raises:
        UnsupportedModelError: The model cannot be converted.
        ParityError: The converted file differs by more than the tolerance.
    """
    precision, scratch, float32 = options.precision, folder.with_name("converted"), folder / verify.MODEL
    scratch.mkdir()
    step(f"Converting to {precision}")
    write(convert(read(float32), precision, scratch, report.provider), scratch / verify.MODEL)
    step(f"Running onnxruntime on the golden cases in {precision}")
    actual = verify.run_cases(scratch / verify.MODEL, cases, report.provider)
    scores = top1(cases, actual)
    about = {
        "name": precision,
        **gains(scratch / verify.MODEL, float32, cases, report.provider),
        **{f"float32_{key}": max(getattr(row, key) for row in report.rows) for key in ("max_abs", "max_rel")},
        **({"top1": scores} if scores else {}),
    }
    rows = compared(cases, actual, options.tolerance, report.provider)
    report = replace(report, rows=rows, precision=about, coverage=_with_seen(report.coverage, rows))
    report.raise_if_failed()
    (folder / DATA).unlink(missing_ok=True)
    for file in scratch.glob(f"{verify.MODEL}*"):
        file.replace(folder / file.name)
    verify.save_cases(folder / verify.CASES, cases)
    return report


def _with_seen(coverage: dict[str, Any] | None, rows: Iterable[ParityRow]) -> dict[str, Any] | None:
    """Return what was compared, and how far each output of floats moved at most, of what stands beside it."""
    if coverage is None:
        return None
    outputs = {name: dict(known) for name, known in coverage["outputs"].items()}
    for row in rows:
        if row.dtype.startswith("float"):
            before = outputs[row.name].get("seen_in_precision", 0.0)
            outputs[row.name]["seen_in_precision"] = max(before, row.max_rel)
    return coverage | {"outputs": outputs}


def convert(traced: Traced, precision: str, folder: Path, provider: str = "cpu") -> Traced:
    """Return a float32 model in another precision; its inputs and outputs keep their types.

    Args:
        traced: The float32 model; it is not changed.
        precision: `"float16"` or `"int8"`.
        folder: An empty folder, where a quantizer writes while it works.
        provider: Where it is to run.

    Raises:
        UnsupportedModelError: onnxruntime's quantizer fails on the model.
    """
    found = to_float16(traced, provider) if precision == "float16" else to_int8(traced, folder)
    describe(found.model, traced.model.graph.name, precision, traced.model.producer_version)
    return found
