"""Convert a checked float32 file to float16 or int8, and check and measure the result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._format.case_writing import save_cases
from .._format.interruptible_session import run_cases
from .._format.names import CASES, MODEL, Arrays, Case
from .._format.parity_report import ParityReport, ParityRow, compared
from .._golden_cases.coverage import left_to_rounding
from .._onnx.external_data import DATA
from .._onnx.metadata import write_producer
from .._onnx.model_files import read, write
from .._options import Options
from .._progress import Progress
from .calibrated_int8 import check_limit, to_calibrated_int8
from .conversion_gains import gains, top1
from .dynamic_int8 import to_int8
from .embedding_tables import check_tables
from .float16_overflow import to_measured_float16
from .qdq_reference import with_oracle


def converted(
    folder: Path,
    report: ParityReport,
    cases: Sequence[Case],
    options: Options,
    step: Progress,
    batches: Sequence[Arrays] = (),
    drawn: Collection[str] = (),
) -> ParityReport:
    """Replace a bundle's float32 ONNX file by one in another precision, and compare that one with Keras in turn.

    Args:
        folder: The bundle that is being written.
        report: The report of its float32 file, all of which passed.
        cases: The golden cases, with what rounding does in this precision; they replace those of the bundle.
        options: The precision, `"float16"` or `"int8"`, and the tolerance for the converted file.
        step: Is told what is being done.
        batches: What an int8 file is calibrated on, if it is: such a file is compared with what its own graph says.
        drawn: Float inputs without samples.

    Returns:
        The report with the rows of the converted file, and with its `precision`.

    Raises:
        UnsupportedModelError: The model cannot be converted.
        ParityError: The converted file differs by more than the tolerance, or is further from float32 than `limit`.
    """
    precision, scratch, float32 = options.precision, folder.with_name("converted"), folder / MODEL
    scratch.mkdir()
    step(f"Converting to {precision}")
    about: dict[str, Any] = {"name": precision}
    source = read(float32)
    if batches:
        made, about["calibration"] = to_calibrated_int8(float32, batches, options.limit, scratch, step)
        step("Computing what the int8 graph says without integers")
        cases = with_oracle(made.model, cases, report.provider, scratch)
    elif precision == "int8":
        made = to_int8(source, scratch)
    else:
        made, about["ranges"] = to_measured_float16(source, cases, report.provider, scratch, drawn)
    write_producer(made.model, source.model.graph.name, precision, source.model.producer_version)
    write(made, scratch / MODEL)
    check_tables(source, read(scratch / MODEL))
    step(f"Running onnxruntime on the golden cases in {precision}")
    actual = run_cases(scratch / MODEL, cases, report.provider)
    scores = {} if batches else top1(cases, actual)
    if precision == "int8":
        pairs = zip(cases, run_cases(float32, cases, report.provider), strict=True)
        rows = compared((case._replace(outputs=outputs) for case, outputs in pairs), actual, options.tolerance)
        changes = [row.max_abs for row in rows if row.dtype.startswith("float")]
        about["changes_nothing"] = bool(changes) and not any(changes)
    about |= {
        **gains(scratch / MODEL, float32, cases, report.provider),
        **{f"float32_{key}": max(getattr(row, key) for row in report.rows) for key in ("max_abs", "max_rel")},
        **({"top1": scores} if scores else {}),
    }
    rows = compared(cases, actual, options.tolerance, report.provider)
    coverage = _with_limits(report.coverage, cases) if batches else _with_seen(report.coverage, rows)
    report = replace(report, rows=rows, precision=about, coverage=coverage)
    check_limit(report)  # first, as it was asked for and says what to do
    report.raise_if_failed()
    if options.strict:
        report.raise_if_warned()
    (folder / DATA).unlink(missing_ok=True)
    for file in scratch.glob(f"{MODEL}*"):
        file.replace(folder / file.name)
    save_cases(folder / CASES, cases)
    return report


def _with_seen(coverage: dict[str, Any] | None, rows: Iterable[ParityRow]) -> dict[str, Any] | None:
    """Return what was compared, and how far each output of floats moved at most, of what stands beside it."""
    if coverage is None:
        return None
    outputs = {name: dict(known) for name, known in coverage["outputs"].items()}
    for row in rows:
        if row.dtype.startswith("float"):
            before = outputs[row.name].get("seen_in_precision", 0.0)
            if row.max_rel >= before:
                outputs[row.name] |= {"seen_in_precision": row.max_rel, "seen_in_case": row.case}
    return coverage | {"outputs": outputs}


def _with_limits(coverage: dict[str, Any] | None, cases: Sequence[Case]) -> dict[str, Any] | None:
    """Return what was compared, with what is left to rounding in cases that are no longer Keras's."""
    if coverage is None:
        return None
    outputs = {
        name: known | {"rounding_in_precision" if "rounding" in known else "ties": left_to_rounding(name, cases)}
        for name, known in coverage["outputs"].items()
    }
    return coverage | {"outputs": outputs}
