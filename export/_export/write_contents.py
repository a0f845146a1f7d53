"""Write the files of a bundle: SavedModel, ONNX model, golden cases, report, manifest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras

from .._bundle.bundle_files import SAVED_MODEL, seal
from .._bundle.untrusted_input import REPORT
from .._errors import ExportError, ProviderError, UntraceableError
from .._format.case_writing import save_cases
from .._format.interruptible_session import run_cases
from .._format.manifest import Spec
from .._format.names import CASES, MODEL, Arrays
from .._format.parity_report import NO_MORE, ParityError, ParityReport, ParityRow, compared
from .._golden_cases.coverage import coverage_of
from .._golden_cases.golden_cases import Cases
from .._lowering_names import ADAPTIVE, LARGE_UNSEEN
from .._lowerings.form_coverage import small_only
from .._lowerings.lower_model import lowered_models
from .._lowerings.lowered_model import Lowered
from .._onnx.metadata import write_bundle_metadata, write_producer
from .._onnx.model_files import write
from .._onnx.traced_model import Traced
from .._onnxruntime_releases import check_onnxruntime
from .._options import FLOAT32, STANDARD, Options
from .._passes.finalize import check_standard
from .._precision.calibration_data import calibration_batches
from .._precision.convert_precision import converted
from .._progress import Progress
from .._rounding.keras_implementations import (
    LAYER_OUTPUTS,
    begins_in,
    check_predict,
    layer_differing_in_predict,
    save_layer_outputs,
)
from .._rounding.reassociation_error import NEAR, with_reordering
from .._rounding.reference import Reference
from .._signature.signature import Signature
from .._tracing.saved_model import write_saved_model
from .._tracing.saved_model_worker import SavedModelRun
from .._tracing.untraceable_axes import untraceable_axes
from .large_form_check import check_large_forms
from .manifest_entries import PACKAGES, manifest_of
from .mismatch import hint_of
from .package_versions import versions_of
from .weight_comparison import compare_weights


def write_contents(
    folder: Path, signature: Signature, reference: Reference, options: Options, step: Progress, fresh: SavedModelRun
) -> None:
    """Fill the empty folder of a bundle; files that are not kept are written beside it.

    Args:
        folder: The folder.
        signature: The model.
        reference: What it gives.
        options: What was asked for.
        step: Is told what is being done.
        fresh: A process that has not begun.

    Raises:
        UntraceableError: It could with some axes static. What is in the folder by then is worth nothing.
        UnsupportedModelError: The model or an op in it cannot be exported.
        ParityError: An output differs from the reference.
        ExportError: What was written does not run.
    """
    try:
        _write(folder, signature, reference, options, step, fresh)
    except ProviderError:
        raise
    except ExportError as error:
        step("Looking for axes that cannot be traced")
        if not (reasons := untraceable_axes(signature, reference.golden)):
            raise
        raise UntraceableError(reasons) from error


def _write(
    folder: Path, signature: Signature, reference: Reference, options: Options, step: Progress, fresh: SavedModelRun
) -> None:
    golden = reference.golden
    batches = _calibration(signature, golden, options)
    (folder / CASES).parent.mkdir()
    save_cases(folder / CASES, golden.cases)

    step("Writing the SavedModel")
    saved_model = folder / SAVED_MODEL
    function = write_saved_model(signature, saved_model)
    fresh.begin(saved_model, folder / CASES, folder.with_name("results.npz"))
    exact = options.tolerance if options.precision == FLOAT32 else NO_MORE

    step("Tracing to ONNX")
    lowered, finished, opset, actual = _first_that_matches(folder, signature, golden, options, exact, function, step)
    step("Waiting for the SavedModel in a fresh process")
    saved = fresh.outputs()
    rows, saved_model_rows, predict_rows = _rows(golden, actual, saved, reference.predicted, exact, options.provider)
    if near := {row.case for row in (*rows, *saved_model_rows, *predict_rows) if row.of_limit > NEAR}:
        step("Measuring what another order of sums does to the outputs")
        golden = replace(golden, cases=with_reordering(signature, golden.cases, near))
        golden = replace(golden, coverage=coverage_of(golden, reference.converted_cases))
        rows, saved_model_rows, predict_rows = _rows(
            golden, actual, saved, reference.predicted, exact, options.provider
        )
    is_here = reference.backend == keras.backend.backend()
    first = golden.cases[0]
    check_predict(
        signature.model, predict_rows, lambda: layer_differing_in_predict(signature, first) if is_here else None
    )
    manifest = manifest_of(signature, reference, lowered, options, opset)
    save_cases(folder / CASES, golden.cases)
    clone = reference.float32_clone
    report = ParityReport(options.provider, rows, saved_model_rows, golden.refused, clone, coverage=golden.coverage)
    try:
        report.raise_if_failed()
    except ParityError as error:
        failed = next((row.case for row in saved_model_rows if not row.passed), None)
        hint = hint_of(error.report, folder, signature, golden, manifest)
        if failed is not None and not hint:
            case = next(case for case in golden.cases if case.name == failed)
            hint = f" TensorFlow's graph differs from an eager call of Keras on {reference.backend}."
            if is_here:
                hint += begins_in(layer_differing_in_predict(signature, case))
            else:
                save_layer_outputs(signature, case, folder.with_name(LAYER_OUTPUTS))
            if any("has shape" in (row.problem or "") for row in saved_model_rows):
                hint += " If a layer computes a shape from sizes in Python, fix the sizes: `static_axes=` (`--static`)."
        raise ParityError(f"{error}{hint}", report) from None
    weights = compare_weights(folder / MODEL, finished.unfolded, signature.model.variables)
    deciding = [call for call, lowering in lowered.lowerings.items() if lowering == ADAPTIVE]
    unseen = small_only(finished, deciding, golden, folder.with_name("sizes"))
    report = replace(report, coverage=golden.coverage | {"small_only": unseen, "weights": weights})
    if options.strict:
        report.raise_if_warned()
    if options.precision != FLOAT32:
        report = converted(folder, report, reference.converted_cases, options, step, batches, golden.drawn)
        compare_weights(folder / MODEL, finished.unfolded, signature.model.variables)
        # 2**24 + 1 and ties may legitimately differ in float16 and int8
        usual = tuple(row for row in report.saved_model_rows if row.case not in golden.trials)
        report = replace(report, saved_model_rows=usual)
    if not {*LARGE_UNSEEN}.isdisjoint(lowered.lowerings.values()):
        step("Running onnxruntime on the forms of attention for large sizes")
        check_large_forms(folder, lowered, replace(reference, golden=golden), options, opset)
    (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
    inputs = (report.coverage or golden.coverage)["inputs"]
    tried = {name: known["values"]["drawn"] for name, known in inputs.items()}
    count = len(golden.cases if options.precision == FLOAT32 else reference.converted_cases)
    write_bundle_metadata(folder, manifest)
    if options.target == STANDARD:
        check_standard(folder / MODEL)
    if not options.saved_model:
        shutil.rmtree(saved_model)
    calibrated = (report.precision or {}).get("calibration", {})
    seal(folder, replace(manifest, values=tried, parity={**manifest.parity, "cases": count}, calibration=calibrated))


def _calibration(signature: Signature, golden: Cases, options: Options) -> list[Arrays]:
    """Return what int8 is calibrated on, before anything is traced; nothing where it was not given."""
    if options.calibration is None:
        return []
    taken = tuple(Spec(spec.name, spec.dtype, golden.axes[spec.name]) for spec in signature.inputs)
    return calibration_batches(options.calibration, taken, counts=golden.lengths, multiples=golden.multiples)


def _first_that_matches(
    folder: Path,
    signature: Signature,
    golden: Cases,
    options: Options,
    exact: Mapping[str, float],
    function: Any,
    step: Progress,
) -> tuple[Lowered, Traced, int, list[Arrays]]:
    """Write the first way to lower the model that gives what Keras does, or the last; return also what it gives."""
    for lowered in lowered_models(signature, options, function, golden.axes):
        try:
            finished, opset = lowered.finished(golden, options.opset, options.most)
            check_onnxruntime(opset, lowered.lowerings.values())
            write_producer(finished.model, signature.model.name, FLOAT32, versions_of(PACKAGES)["keras-attn"])
            write(finished, folder / MODEL)
            step("Running onnxruntime on the golden cases")
            actual = run_cases(folder / MODEL, golden.cases, options.provider)
        except ProviderError:
            raise
        except ExportError:
            if not lowered.written:
                raise
            continue
        rows = compared(golden.cases, actual, exact, options.provider)
        if not lowered.written or all(row.passed for row in rows):
            break
    return lowered, finished, opset, actual


def _rows(
    golden: Cases,
    actual: Sequence[Arrays],
    saved: Sequence[Arrays],
    predicted: Arrays | None,
    exact: Mapping[str, float],
    provider: str,
) -> tuple[tuple[ParityRow, ...], tuple[ParityRow, ...], tuple[ParityRow, ...]]:
    """Return the comparisons of the ONNX file, the SavedModel and `predict` with the golden outputs."""
    cases = golden.cases
    return (
        compared(cases, actual, exact, provider),
        compared(cases, saved, exact),
        () if predicted is None else compared(cases[:1], [predicted], exact),
    )
