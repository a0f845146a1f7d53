"""Comparison of the ONNX file, the SavedModel and `predict` with the golden outputs of Keras."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import keras

from .._format.names import Arrays, Case
from .._format.parity_report import ParityReport, ParityRow, compare_cases
from .._golden_cases.coverage import summarize_coverage
from .._options import Options
from .._rounding.keras_implementations import check_predict, find_layer_differing_in_predict
from .._rounding.reassociation_error import REMEASURED_LIMIT_SHARE, widen_for_reassociation
from .._rounding.reference import Reference
from .._signature.signature import Signature
from .export_run import ExportRun
from .float32_file import select_float32_tolerance


class Outputs(NamedTuple):
    """Outputs for the golden cases, from three implementations."""

    onnx: Sequence[Arrays]  # of onnxruntime
    saved_model: Sequence[Arrays]  # of the SavedModel in a process without Keras
    predict: Arrays | None  # of `predict` for the first case, if `predict` can run


@dataclass(frozen=True)
class KerasComparison:
    """Comparison of three sets of outputs with the golden cases."""

    reference: Reference  # golden cases with the limits of the comparison
    rows: tuple[ParityRow, ...]  # of the ONNX file
    saved_model_rows: tuple[ParityRow, ...]
    predict_rows: tuple[ParityRow, ...]

    @property
    def near_limit(self) -> set[str]:
        """Names of the cases in which an output reaches the share `REMEASURED_LIMIT_SHARE` of its limit."""
        rows = (*self.rows, *self.saved_model_rows, *self.predict_rows)
        return {row.case for row in rows if row.of_limit > REMEASURED_LIMIT_SHARE}

    @property
    def failed_case(self) -> Case | None:
        """First case with a mismatch of the SavedModel or else of the ONNX file; `None` without mismatch."""
        failed_name = next((row.case for row in (*self.saved_model_rows, *self.rows) if not row.passed), None)
        return next((case for case in self.reference.golden_cases.cases if case.name == failed_name), None)

    @property
    def is_same_backend(self) -> bool:
        """Return True if the golden outputs were computed on the backend of this process."""
        return bool(self.reference.backend == keras.backend.backend())

    def report(self, provider: str) -> ParityReport:
        """Return the parity report of the float32 file."""
        golden, clone = self.reference.golden_cases, self.reference.float32_clone
        return ParityReport(
            provider, self.rows, self.saved_model_rows, golden.refusals, clone, coverage=golden.coverage
        )


def compare_with_keras(
    run: ExportRun, signature: Signature, reference: Reference, onnx_outputs: Sequence[Arrays]
) -> KerasComparison:
    """Compare all outputs; raise `PredictError` if the outputs of `predict` differ from an eager call."""
    run.on_step("Waiting for the SavedModel in a fresh process")
    outputs = Outputs(onnx_outputs, run.worker.outputs(), reference.predict_outputs)
    comparison = _compare_and_widen(run, signature, reference, outputs)
    first_case = reference.golden_cases.cases[0]
    check_predict(
        signature.model,
        comparison.predict_rows,
        lambda: find_layer_differing_in_predict(signature, first_case) if comparison.is_same_backend else None,
    )
    return comparison


def _compare_and_widen(run: ExportRun, signature: Signature, reference: Reference, outputs: Outputs) -> KerasComparison:
    comparison = _compare_outputs(reference, outputs, run.options)
    # Limits come from perturbed runs, which cannot show the error of another order of operations (reassociation):
    # onnxruntime fuses, and TensorFlow folds. Measuring this error takes further runs, so it is measured only for cases
    # in which an output reaches the share `REMEASURED_LIMIT_SHARE` of its limit; their limits are then widened.
    if not comparison.near_limit:
        return comparison
    run.on_step("Measuring the rounding error of other orders of summation")
    return _compare_outputs(_widen_limits(signature, reference, comparison.near_limit), outputs, run.options)


def _compare_outputs(reference: Reference, outputs: Outputs, options: Options) -> KerasComparison:
    cases, tolerance = reference.golden_cases.cases, select_float32_tolerance(options)
    return KerasComparison(
        reference,
        compare_cases(cases, outputs.onnx, tolerance, options.provider),
        compare_cases(cases, outputs.saved_model, tolerance),
        () if outputs.predict is None else compare_cases(cases[:1], [outputs.predict], tolerance),
    )


def _widen_limits(signature: Signature, reference: Reference, names: set[str]) -> Reference:
    golden = reference.golden_cases
    golden = replace(golden, cases=widen_for_reassociation(signature, golden.cases, names))
    coverage = summarize_coverage(golden, reference.converted_cases)
    return replace(reference, golden_cases=replace(golden, coverage=coverage))
