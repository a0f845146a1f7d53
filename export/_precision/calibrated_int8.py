"""Static int8 (QDQ): calibrate, choose the layers to quantize, measure the quantization error."""

import functools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from .._format.interruptible_session import open_session, run_session
from .._format.names import Arrays
from .._format.parity_report import ParityError, ParityReport
from .._onnx.model_files import load_model, save_model
from .._onnx.traced_model import TracedModel
from .._progress import ProgressCallback
from .calibration_data import count_rows, select_batches
from .qdq_quantizer import calibrate
from .quantization_error import ErrorsByOutput, measure_quantization_error
from .sensitive_layers import choose_float32_layers

# Rows on which the search for sensitive layers quantizes and runs the model some 40 times. The error in the report is
# measured on all rows.
MAX_TRIAL_ROWS = 128


def quantize_with_calibration(
    float32: Path, batches: Sequence[Arrays], limit: float | None, folder: Path, on_step: ProgressCallback
) -> tuple[TracedModel, dict[str, Any]]:
    """Return an int8 model in QDQ form, and the entry `calibration` for the `precision` of the parity report.

    Args:
        float32: The checked float32 file.
        batches: Calibration arrays, by input name.
        limit: The largest allowed error of an output, as a share of its largest value.
        folder: A folder for temporary files.
        on_step: Progress callback.
    """
    on_step("Running the float32 file on the calibration arrays")
    source, trial_file = load_model(float32), folder / "tried.onnx"
    model = calibrate(source, batches, folder)

    def measure_error(layers: Collection[str], inputs: Sequence[Arrays], expected: Sequence[Arrays]) -> ErrorsByOutput:
        save_model(model.quantize(layers), trial_file, check=False)
        return measure_quantization_error(expected, _run_file(trial_file, inputs))

    trial_batches = select_batches(batches, MAX_TRIAL_ROWS)
    trial_outputs = _run_file(float32, trial_batches)
    on_step("Searching for layers with a large int8 error")
    measure_trial = functools.partial(measure_error, inputs=trial_batches, expected=trial_outputs)
    float32_layers = choose_float32_layers([*model.layers], measure_trial, limit)
    int8_layers = [layer for layer in model.layers if layer not in float32_layers]
    output_errors = measure_error(int8_layers, batches, _run_file(float32, batches))
    for value in source.model.graph.output:
        axes = value.type.tensor_type.shape.dim
        # A dynamic last axis has no classes: the largest attention weight belongs to a key.
        if not axes or not axes[-1].HasField("dim_value"):
            output_errors[value.name].pop("same_choices", None)
    return model.quantize(int8_layers), {
        "rows": sum(map(count_rows, batches)),
        "int8_layers": int8_layers,
        "float32_layers": float32_layers,
        "outputs": output_errors,
        "limit": limit,
    }


def check_limit(report: ParityReport) -> None:
    """Raise `ParityError` if a calibrated file differs from float32 by more than the user's limit."""
    calibration = (report.precision or {}).get("calibration")
    if calibration is None or calibration["limit"] is None:
        return
    for name, error in calibration["outputs"].items():
        if error["share"] > calibration["limit"]:
            distance = f"{error['share']:.2g} of its largest value on `calibration`, by {error['mean']:.2g} on average"
            raise ParityError(
                f"In int8 output `{name}` differs from float32 by up to {distance}, and `limit` allows "
                f"{calibration['limit']:g}. Calibrate on more typical rows, raise `limit`, or use float16.",
                report,
            )


def _run_file(file: Path, batches: Sequence[Arrays]) -> list[Arrays]:
    session = open_session(file)
    return [run_session(session, inputs) for inputs in batches]
