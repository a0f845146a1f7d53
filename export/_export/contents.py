"""Write what is in a bundle: golden cases, SavedModel, ONNX file, parity report, manifest. Keras runs on TensorFlow."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras

from keras_attn import AttentionPooling, MaskedSoftmax

from .._bundle.folder import SAVED_MODEL, seal
from .._bundle.parity import ParityError, ParityReport, ParityRow, compared
from .._bundle.untrusted_input import REPORT
from .._errors import ExportError, ProviderError, UntraceableError
from .._graphs.onnx_file import check_standard, describe, tell, write
from .._graphs.traced import Traced
from .._internals.stock_attention import is_stock_attention
from .._lowerings.forms_run import small_only
from .._lowerings.lower import lowered_models
from .._lowerings.lowered import Lowered
from .._model.coverage import coverage_of
from .._model.golden_cases import Cases
from .._model.implementations import (
    LAYER_OUTPUTS,
    begins_in,
    check_predict,
    layer_differing_in_predict,
    save_layer_outputs,
)
from .._model.reference import Reference
from .._model.reordered import NEAR, with_reordering
from .._model.signature import Signature
from .._options import (
    ADAPTIVE,
    FLOAT32,
    LARGE_UNSEEN,
    NO_MORE,
    PORTABLE,
    STANDARD,
    Options,
    check_onnxruntime,
    lowest_onnxruntime,
)
from .._precision.calibration import calibration_batches
from .._precision.lower_precision import converted
from .._precision.overflow import to_measured_float16
from .._progress import Progress
from .._standalone import verify
from .._standalone.verify import Arrays, Manifest, Spec, dtype_name
from .._tracing.fresh_process import SavedModelRun
from .._tracing.saved_model import write_saved_model
from .._tracing.untraceable import untraceable_axes
from .converted_weights import compare_weights
from .mismatch import hint_of
from .versions import versions_of

PACKAGES = ("keras-attn", "tensorflow", "keras", "tf2onnx", "onnx", "numpy")
OF_TEXTS = ("keras-hub", "tensorflow-text")  # where they are imported; the SavedModel of a tokenizer needs the second


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
    (folder / verify.CASES).parent.mkdir()
    verify.save_cases(folder / verify.CASES, golden.cases)

    step("Writing the SavedModel")
    saved_model = folder / SAVED_MODEL
    function = write_saved_model(signature, saved_model)
    fresh.begin(saved_model, folder / verify.CASES, folder.with_name("results.npz"))
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
    manifest = _manifest(signature, reference, lowered, options, opset)
    verify.save_cases(folder / verify.CASES, golden.cases)
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
    weights = compare_weights(folder / verify.MODEL, finished.unfolded, signature.model.variables)
    deciding = [call for call, lowering in lowered.lowerings.items() if lowering == ADAPTIVE]
    unseen = small_only(finished, deciding, golden, folder.with_name("sizes"))
    report = replace(report, coverage=golden.coverage | {"small_only": unseen, "weights": weights})
    if options.strict:
        report.raise_if_warned()
    if options.precision != FLOAT32:
        report = converted(folder, report, reference.converted_cases, options, step, batches, golden.drawn)
        compare_weights(folder / verify.MODEL, finished.unfolded, signature.model.variables)
        # 2**24 + 1 and ties may legitimately differ in float16 and int8
        usual = tuple(row for row in report.saved_model_rows if row.case not in golden.trials)
        report = replace(report, saved_model_rows=usual)
    if not {*LARGE_UNSEEN}.isdisjoint(lowered.lowerings.values()):
        step("Running onnxruntime on the forms of attention for large sizes")
        _check_large_forms(folder, lowered, replace(reference, golden=golden), options, opset)
    (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
    inputs = (report.coverage or golden.coverage)["inputs"]
    tried = {name: known["values"]["drawn"] for name, known in inputs.items()}
    count = len(golden.cases if options.precision == FLOAT32 else reference.converted_cases)
    tell(folder, manifest)
    if options.target == STANDARD:
        check_standard(folder / verify.MODEL)
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
            describe(finished.model, signature.model.name, FLOAT32, versions_of(PACKAGES)["keras-attn"])
            write(finished, folder / verify.MODEL)
            step("Running onnxruntime on the golden cases")
            actual = verify.run_cases(folder / verify.MODEL, golden.cases, options.provider)
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


def _check_large_forms(folder: Path, lowered: Lowered, reference: Reference, options: Options, opset: int) -> None:
    """Compare what a file gives where it takes the forms for large sizes at all sizes; it is not kept.

    Golden cases are too small for them: on a GPU they are long enough for the kernels that they get at sizes of their
    own, and on a CPU a case of all pairs at once would cost what the form is there to save.

    Raises:
        ParityError: An output differs.
    """
    by_operators = replace(lowered, precision="float16")  # for few queries too, which in float32 are plain
    forms = [lowered.functions(opset)]
    for form in (replace(lowered, only_large=True), by_operators):
        if form.functions(opset) not in forms:  # sizes decide
            forms.append(form.functions(opset))
            _check_form(folder, form, reference, options, opset)


def _check_form(folder: Path, form: Lowered, reference: Reference, options: Options, opset: int) -> None:
    large, _ = form.finished(reference.golden, opset)
    cases, limits, scratch = reference.golden.cases, options.tolerance, folder.with_name("large")
    scratch.mkdir()
    if options.precision == "float16":
        cases = reference.converted_cases
        large = to_measured_float16(large, cases, options.provider, scratch)[0]
    elif options.precision != FLOAT32:
        limits = NO_MORE  # what is in a function stays float32
    cases = [case for case in cases if case.name not in reference.golden.trials]
    write(large, scratch / verify.MODEL)
    rows = compared(cases, verify.run_cases(scratch / verify.MODEL, cases, options.provider), limits, options.provider)
    shutil.rmtree(scratch)  # the weights, once more
    try:
        ParityReport(options.provider, rows).raise_if_failed()
    except ParityError as error:
        raise ParityError(f"In the forms of attention for large sizes: {error}", error.report) from None


def _reason(layer: Any) -> str:
    """Return why a layer that handed no computation to the exporter is written in plain operators."""
    if isinstance(layer, MaskedSoftmax):
        return "it computes a softmax only"
    if isinstance(layer, AttentionPooling) or is_stock_attention(layer):
        return "no output of the model depends on its attention"
    return "its class is derived from an attention layer of Keras, and may compute attention in another way"


def _manifest(signature: Signature, reference: Reference, lowered: Lowered, options: Options, opset: int) -> Manifest:
    golden, first = reference.golden, reference.golden.cases[0].outputs
    of_texts = [each for each in OF_TEXTS if each.replace("-", "_") in sys.modules]
    packages = dict.fromkeys((*PACKAGES, *of_texts, reference.backend, "onnxruntime"))
    told = lowered.layers(opset)
    return Manifest(
        model=signature.model.name,
        inputs=tuple(Spec(spec.name, spec.dtype, golden.axes[spec.name]) for spec in signature.inputs),
        outputs=tuple(Spec(name, dtype_name(first[name]), shape) for name, shape in lowered.outputs(golden).items()),
        counts=golden.lengths,
        weights_of=reference.weights_of,
        multiples=golden.multiples,
        static=golden.static,
        opset=opset,
        precision=options.precision,
        layers=[
            {
                "name": layer.path,
                "class": type(layer).__name__,
                "lowering": PORTABLE,
                "form": f"plain operators: {lowered.reasons.get(id(layer)) or _reason(layer)}",
                "precision": options.precision,
                **told.get(id(layer), {}),
            }
            for layer in signature.manifest_layers
        ]
        + [
            {"name": call.layer, "class": "operations", **told[call.owner], "precision": options.precision}
            for call in lowered.written
            if call.owner not in map(id, signature.manifest_layers)
        ],
        backend=reference.backend,
        versions=versions_of(packages),
        lowest_onnxruntime=lowest_onnxruntime(opset, lowered.lowerings.values()),
        parity={"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
        sha256={},  # of what is not all written yet
    )
