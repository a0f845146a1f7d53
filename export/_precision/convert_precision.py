"""Convert a checked float32 file to float16 or int8, and check and measure the result."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .._array_comparison import arrays_match
from .._format.case_writing import save_cases
from .._format.interruptible_session import run_cases
from .._format.names import CASES_FILE, MODEL, Arrays, Case
from .._format.parity_report import ParityReport, ParityRow, compare_cases
from .._golden_cases.coverage import compute_relative_rounding
from .._onnx.external_data import DATA_FILE
from .._onnx.metadata import write_producer
from .._onnx.model_files import load_model, save_model
from .._onnx.traced_model import TracedModel
from .._options import FLOAT16, Options
from .._progress import ProgressCallback
from .calibrated_int8 import check_limit, quantize_with_calibration
from .conversion_gains import compare_size_and_time, measure_top1_agreement
from .dynamic_int8 import quantize_dynamically
from .embedding_tables import check_tables
from .float16_overflow import convert_without_overflow
from .qdq_reference import compute_float_reference

OutputEntries = dict[str, dict[str, Any]]  # `outputs` of the report's coverage, by output name


class _Conversion(NamedTuple):
    """A converted model, the cases to compare with, and entries for `precision` of the report."""

    traced: TracedModel
    cases: Sequence[Case]
    summary: dict[str, Any]


def convert_precision(
    folder: Path,
    report: ParityReport,
    cases: Sequence[Case],
    options: Options,
    on_step: ProgressCallback,
    batches: Sequence[Arrays],
    drawn: Collection[str],
) -> ParityReport:
    """Replace the float32 ONNX file of a bundle by a converted file, and return its report.

    Args:
        folder: The bundle.
        report: The report of the float32 file.
        cases: The golden cases with rounding limits of the other precision; they replace the cases of the bundle.
        options: The precision, and the tolerance for the converted file.
        on_step: Progress callback.
        batches: Calibration arrays for static int8; empty for dynamic int8 or float16.
        drawn: Float inputs without samples.
    """
    float32, scratch = folder / MODEL, folder.with_name("converted")
    scratch.mkdir()
    on_step(f"Converting to {options.precision}")
    source = load_model(float32)
    file = scratch / MODEL
    if batches:
        conversion = _convert_static_int8(float32, batches, cases, options, scratch, on_step)
    else:
        conversion = _convert_float16_or_dynamic_int8(source, cases, options, scratch, drawn)
    write_producer(conversion.traced.model, source.model.graph.name, options.precision, source.model.producer_version)
    save_model(conversion.traced, file)
    check_tables(source, load_model(file))
    on_step(f"Running onnxruntime on the golden cases in {options.precision}")
    actual = run_cases(file, conversion.cases, options.provider)
    is_int8 = options.precision != FLOAT16
    is_unchanged = is_int8 and _are_equal(run_cases(float32, conversion.cases, options.provider), actual)
    agreement = {} if batches else measure_top1_agreement(conversion.cases, actual)
    summary = {
        **conversion.summary,
        **({"changes_nothing": is_unchanged} if is_int8 else {}),
        **compare_size_and_time(file, float32, conversion.cases, options.provider),
        **{f"float32_{key}": max(getattr(row, key) for row in report.rows) for key in ("max_abs", "max_rel")},
        **({"top1": agreement} if agreement else {}),
    }
    rows = compare_cases(conversion.cases, actual, options.tolerance, options.provider)
    assert report.coverage is not None  # an export always has coverage
    entries = report.coverage["outputs"]
    entries = _add_rounding_shares(entries, conversion.cases) if batches else _add_observed_errors(entries, rows)
    coverage = {**report.coverage, "outputs": entries}
    converted_report = replace(report, rows=rows, precision=summary, coverage=coverage)
    check_limit(converted_report)  # before other failures, because the message names remedies
    converted_report.raise_if_failed()
    if options.strict:
        converted_report.raise_if_warned()
    (folder / DATA_FILE).unlink(missing_ok=True)
    for part in scratch.glob(f"{MODEL}*"):
        part.replace(folder / part.name)
    save_cases(folder / CASES_FILE, conversion.cases)
    return converted_report


def _convert_static_int8(
    float32: Path,
    batches: Sequence[Arrays],
    cases: Sequence[Case],
    options: Options,
    scratch: Path,
    on_step: ProgressCallback,
) -> _Conversion:
    """Quantize with the ranges of calibration arrays; the reference is the QDQ graph computed in floats."""
    traced, calibration = quantize_with_calibration(float32, batches, options.limit, scratch, on_step)
    on_step("Computing the int8 graph in floats")
    graph_cases = compute_float_reference(traced.model, cases, options.provider, scratch)
    return _Conversion(traced, graph_cases, {"name": options.precision, "calibration": calibration})


def _convert_float16_or_dynamic_int8(
    source: TracedModel, cases: Sequence[Case], options: Options, scratch: Path, drawn: Collection[str]
) -> _Conversion:
    """Convert to float16 or dynamic int8; the reference is Keras."""
    if options.precision != FLOAT16:
        return _Conversion(quantize_dynamically(source, scratch), cases, {"name": options.precision})
    traced, ranges = convert_without_overflow(source, cases, options.provider, scratch, drawn)
    return _Conversion(traced, cases, {"name": options.precision, "ranges": ranges})


def _are_equal(expected: Sequence[Arrays], actual: Sequence[Arrays]) -> bool:
    """Return True if all float outputs are equal, and there is at least one."""
    pairs = [(left[name], right[name]) for left, right in zip(expected, actual, strict=True) for name in left]
    are_equal = [arrays_match(right, left) for left, right in pairs if left.dtype.kind == "f"]
    return bool(are_equal) and all(are_equal)


def _add_observed_errors(outputs: OutputEntries, rows: Iterable[ParityRow]) -> OutputEntries:
    """Return the entries with the largest relative error of each float output, and its case."""
    extended = {name: dict(entries) for name, entries in outputs.items()}
    for row in rows:
        entries = extended[row.name]
        if row.dtype.startswith("float") and row.max_rel >= entries.get("seen_in_precision", 0.0):
            entries |= {"seen_in_precision": row.max_rel, "seen_in_case": row.case}
    return extended


def _add_rounding_shares(outputs: OutputEntries, cases: Sequence[Case]) -> OutputEntries:
    """Return the entries with the share of each output that rounding may change in cases of an int8 graph."""
    return {
        name: entries
        | {"rounding_in_precision" if "rounding" in entries else "ties": compute_relative_rounding(name, cases)}
        for name, entries in outputs.items()
    }
