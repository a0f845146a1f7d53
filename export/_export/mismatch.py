"""Hints in the error of a mismatch: the operator in which the mismatch begins, or a mistake of Keras."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from .._bundle.bundle import Bundle
from .._bundle.first_difference import first_difference
from .._errors import ExportError
from .._format.manifest import Manifest
from .._format.parity_report import ROUGH, ParityReport
from .._golden_cases.golden_cases import Cases
from .._private_api.keras_internals import mistaken_biases
from .._signature.signature import Signature

BIAS = (
    " Keras adds along a different axis in eager mode than in a graph: `keras.ops.add(x, y)` treats `y` as a bias if "
    "its size equals the last axis of `x` (keras PR 20386). Write `keras.ops.subtract(x, -y)`."
)


def hint_of(report: ParityReport, folder: Path, signature: Signature, golden: Cases, manifest: Manifest) -> str:
    """Return a hint on the first failed case of a report, or an empty string."""
    failed = next((row.case for row in (*report.saved_model_rows, *report.rows) if not row.passed), None)
    if failed is None:
        return ""
    case = next(case for case in golden.cases if case.name == failed)
    if any(not row.passed for row in report.saved_model_rows):
        with mistaken_biases() as mistakes:
            signature.run(case.inputs)
        return BIAS if any(mistakes) else ""
    try:
        comparison = first_difference(Bundle(folder, asdict(manifest)), [failed], ROUGH, among=[case])
    except (ExportError, OSError, ValueError):
        return ""
    if comparison.first is None:
        return ""
    operator = f"`{comparison.operators[-1]}` of " if comparison.operators else ""
    return f" It begins in {operator}layer `{comparison.first.layer}`."
