"""Hints in the error of a mismatch: the operator or layer in which it begins, or a defect of Keras.

If the SavedModel agrees with Keras, the converter is wrong: `first_difference` names the operator of the ONNX file. If
not, TensorFlow's graph differs from the eager call: the layer is named, or the known defect of `keras.ops.add`.
"""

from dataclasses import asdict

from .._bundle.bundle import Bundle
from .._bundle.first_difference import find_first_difference
from .._errors import ExportError
from .._format.manifest import Manifest
from .._format.names import Case
from .._format.parity_report import ROUGH_TOLERANCE
from .._private_api.keras_internals import detect_additions_along_wrong_axis
from .._rounding.keras_implementations import (
    LAYER_OUTPUTS_FILE,
    find_layer_differing_in_predict,
    name_differing_layer,
    save_layer_outputs,
)
from .._signature.signature import Signature
from .export_run import ExportRun
from .keras_comparison import KerasComparison

BIAS_HINT = (
    " Keras adds along a different axis in eager mode than in a graph: `keras.ops.add(x, y)` treats `y` as a bias if "
    "its size equals the last axis of `x` (keras PR 20386). Write `keras.ops.subtract(x, -y)`."
)
STATIC_SHAPE_HINT = " If a layer computes a shape from sizes in Python, fix the sizes: `static_axes=` (`--static`)."


def describe_mismatch(run: ExportRun, signature: Signature, comparison: KerasComparison, manifest: Manifest) -> str:
    """Return sentences about the first case with a mismatch, or an empty string."""
    case = comparison.failed_case
    if case is None:
        return ""
    if all(row.passed for row in comparison.saved_model_rows):
        return _describe_operator(run, manifest, case)
    with detect_additions_along_wrong_axis() as mistakes:
        signature.run(case.inputs)
    return BIAS_HINT if any(mistakes) else _describe_layer(run, signature, comparison, case)


def _describe_operator(run: ExportRun, manifest: Manifest, case: Case) -> str:
    """Return the sentence about the first operator of the ONNX file that differs from the SavedModel."""
    try:
        comparison = find_first_difference(
            Bundle(run.folder, asdict(manifest)), [case.name], ROUGH_TOLERANCE, stored_cases=[case]
        )
    except (ExportError, OSError, ValueError):
        return ""
    if comparison.first is None:
        return ""
    operator = f"`{comparison.operators[-1]}` of " if comparison.operators else ""
    return f" It begins in {operator}layer `{comparison.first.layer}`."


def _describe_layer(run: ExportRun, signature: Signature, comparison: KerasComparison, case: Case) -> str:
    """Return sentences about the first layer whose output in TensorFlow's graph differs from an eager call."""
    statement = f" TensorFlow's graph differs from an eager call of Keras on {comparison.reference.backend}."
    # The process with the other backend compares the outputs of its layers with this file.
    if not comparison.is_same_backend:
        save_layer_outputs(signature, case, run.temporary_path(LAYER_OUTPUTS_FILE))
    layer = name_differing_layer(
        find_layer_differing_in_predict(signature, case) if comparison.is_same_backend else None
    )
    has_other_shape = any("has shape" in (row.problem or "") for row in comparison.saved_model_rows)
    return f"{statement}{layer}{STATIC_SHAPE_HINT if has_other_shape else ''}"
