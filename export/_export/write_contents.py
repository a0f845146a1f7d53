"""Write the files of a bundle: SavedModel, ONNX model, golden cases, report, manifest."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .._bundle.bundle_files import SAVED_MODEL_FOLDER, finalize_bundle
from .._bundle.untrusted_input import REPORT_FILE
from .._errors import ExportError, ProviderError, UntraceableError
from .._format.case_writing import save_cases
from .._format.manifest import Manifest
from .._format.names import CASES_FILE, MODEL, Arrays, Case
from .._format.parity_report import ParityError, ParityReport
from .._lowering_names import ADAPTIVE, LOWERINGS_WITH_UNTESTED_LARGE_FORM
from .._lowerings.form_coverage import find_layers_without_large_case
from .._onnx.metadata import write_bundle_metadata
from .._options import FLOAT32, INT8, STANDARD, Options
from .._passes.finalize import check_standard
from .._precision.calibration_data import read_calibration
from .._precision.convert_precision import convert_precision
from .._rounding.reference import Reference
from .._signature.signature import Signature
from .._tracing.saved_model import write_saved_model
from .._tracing.trace_attention import TracedAttention, trace_attention
from .._tracing.untraceable_axes import find_untraceable_axes
from .export_run import ExportRun
from .float32_file import Float32File, write_float32_file
from .keras_comparison import KerasComparison, compare_with_keras
from .large_form_check import check_large_forms
from .manifest_entries import build_manifest
from .mismatch import describe_mismatch
from .weight_comparison import compare_weights


def write_contents(run: ExportRun, signature: Signature, reference: Reference) -> None:
    """Fill the empty folder of a bundle.

    Raises:
        UntraceableError: If TensorFlow can trace the model only with some axes static; the folder is then incomplete.
        UnsupportedModelError: If the model or an operator in it cannot be exported.
        ParityError: If an output differs from the reference.
        ExportError: If a written file does not run.
    """
    try:
        _write_stages(run, signature, reference)
    except ProviderError:
        raise
    except ExportError as error:
        # A mismatch can have this cause too: code of a layer may take a slice of wrong size if an axis is unknown.
        run.on_step("Looking for axes that cannot be traced")
        if not (reasons := find_untraceable_axes(signature, reference.golden_cases)):
            raise
        raise UntraceableError(reasons) from error


def _write_stages(run: ExportRun, signature: Signature, reference: Reference) -> None:
    batches = _read_calibration(reference, run.options)
    function = _write_saved_model(run, signature, reference.golden_cases.cases)
    traced = _trace_to_onnx(run, signature, function)
    file = write_float32_file(run, traced, reference.golden_cases)
    comparison = compare_with_keras(run, signature, reference, file.outputs)
    manifest = build_manifest(reference, file, run.options)
    float32_report = _check_float32(run, signature, comparison, file, manifest)
    report = _convert(run, signature.model.variables, comparison.reference, file, float32_report, batches)
    _check_large_forms(run, comparison.reference, file)
    _finalize(run, comparison.reference, report, manifest)


def _read_calibration(reference: Reference, options: Options) -> list[Arrays]:
    """Return the batches for static int8, so that invalid data is refused before the model is traced."""
    if options.calibration is None:
        return []
    golden = reference.golden_cases
    return read_calibration(
        options.calibration, reference.inputs, counts=golden.counted_axes, multiples=golden.multiples
    )


def _write_saved_model(run: ExportRun, signature: Signature, cases: Sequence[Case]) -> Any:
    """Write the SavedModel, start its run in the worker, and return its concrete function."""
    (run.folder / CASES_FILE).parent.mkdir()
    save_cases(run.folder / CASES_FILE, cases)
    run.on_step("Writing the SavedModel")
    function = write_saved_model(signature, run.folder / SAVED_MODEL_FOLDER)
    run.worker.begin(run.folder / SAVED_MODEL_FOLDER, run.folder / CASES_FILE, run.temporary_path("results.npz"))
    return function


def _trace_to_onnx(run: ExportRun, signature: Signature, function: Any) -> TracedAttention:
    run.on_step("Tracing to ONNX")
    # In int8, values in padding would share a quantization scale with unmasked values.
    return trace_attention(signature, function, needs_zeroed_padding=run.options.precision == INT8)


def _check_float32(
    run: ExportRun, signature: Signature, comparison: KerasComparison, file: Float32File, manifest: Manifest
) -> ParityReport:
    golden = comparison.reference.golden_cases
    # Saved again, because the comparison may have widened limits, and the hint at a mismatch reads the folder.
    save_cases(run.folder / CASES_FILE, golden.cases)
    report = comparison.report(run.options.provider)
    try:
        report.raise_if_failed()
    except ParityError as error:
        raise ParityError(f"{error}{describe_mismatch(run, signature, comparison, manifest)}", report) from None
    weights = compare_weights(run.folder / MODEL, file.model.unfolded_variables, signature.model.variables)
    adaptive = [call for call, lowering in file.lowered.lowerings.items() if lowering == ADAPTIVE]
    untested_layers = find_layers_without_large_case(file.model, adaptive, golden, run.temporary_path("sizes"))
    full_report = replace(report, coverage=golden.coverage | {"small_only": untested_layers, "weights": weights})
    if run.options.strict:
        full_report.raise_if_warned()
    return full_report


def _convert(
    run: ExportRun,
    variables: Sequence[Any],
    reference: Reference,
    file: Float32File,
    report: ParityReport,
    batches: Sequence[Arrays],
) -> ParityReport:
    if run.options.precision == FLOAT32:
        return report
    golden = reference.golden_cases
    cases = reference.converted_cases
    result = convert_precision(run.folder, report, cases, run.options, run.on_step, batches, golden.drawn_floats)
    compare_weights(run.folder / MODEL, file.model.unfolded_variables, variables)
    # Cases of special values are not compared after a conversion: 2**24 + 1 and ties differ in float16 and int8.
    rows = tuple(row for row in result.saved_model_rows if row.case not in golden.injections_by_case)
    return replace(result, saved_model_rows=rows)


def _check_large_forms(run: ExportRun, reference: Reference, file: Float32File) -> None:
    if any(lowering in LOWERINGS_WITH_UNTESTED_LARGE_FORM for lowering in file.lowered.lowerings.values()):
        run.on_step("Running onnxruntime on the forms of attention for large sizes")
        check_large_forms(run, reference, file)


def _finalize(run: ExportRun, reference: Reference, report: ParityReport, manifest: Manifest) -> None:
    """Write the report, metadata and manifest; remove the SavedModel if the user does not want it."""
    (run.folder / REPORT_FILE).write_text(report.to_json() + "\n", encoding="utf-8")
    write_bundle_metadata(run.folder, manifest)
    if run.options.target == STANDARD:
        check_standard(run.folder / MODEL)
    if not run.options.saved_model:
        shutil.rmtree(run.folder / SAVED_MODEL_FOLDER)
    inputs = reference.golden_cases.coverage["inputs"]
    cases = reference.golden_cases.cases if run.options.precision == FLOAT32 else reference.converted_cases
    full_manifest = replace(
        manifest,
        values={name: entry["values"]["drawn"] for name, entry in inputs.items()},
        parity={**manifest.parity, "cases": len(cases)},
        calibration=(report.precision or {}).get("calibration", {}),
    )
    finalize_bundle(run.folder, full_manifest)
