"""Static int8: calibrate, choose the layers to quantize, measure the error."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from .._format.interruptible_session import open_session, run_session
from .._format.names import Arrays
from .._format.parity_report import ParityError, ParityReport
from .._onnx.model_files import read, write
from .._onnx.traced_model import Traced
from .._progress import Progress
from .calibration_data import first_rows, rows_of
from .qdq_quantizer import calibrated
from .quantization_error import Apart, apart
from .sensitive_layers import left_in_float32

TRIED_ROWS = 128  # on which layers are compared with each other


def to_calibrated_int8(
    float32: Path, batches: Sequence[Arrays], limit: float | None, folder: Path, step: Progress
) -> tuple[Traced, dict[str, Any]]:
    """Return an int8 model in QDQ form, and `calibration` of the parity report's `precision`.

    Args:
        float32: The checked float32 file.
        batches: Calibration arrays.
        limit: The largest allowed error of an output, as a share of its largest number.
        folder: A folder for temporary files.
        step: Receives the name of each step.

    Raises:
        UnsupportedModelError: If onnxruntime cannot calibrate or quantize the model.
    """
    step("Running the float32 file on the calibration arrays")
    source, trial = read(float32), folder / "tried.onnx"
    model = calibrated(source, batches, folder)

    def measure(layers: Collection[str], inputs: Sequence[Arrays], expected: Sequence[Arrays]) -> Apart:
        write(model.quantized(layers), trial, check=False)
        return apart(expected, _outputs(trial, inputs))

    few = first_rows(batches, TRIED_ROWS)
    expected_of_few = _outputs(float32, few)
    step("Looking for layers that int8 does harm")
    float32_layers = left_in_float32([*model.layers], lambda layers: measure(layers, few, expected_of_few), limit)
    int8_layers = [layer for layer in model.layers if layer not in float32_layers]
    outputs = measure(int8_layers, batches, _outputs(float32, batches))
    for value in source.model.graph.output:
        axes = value.type.tensor_type.shape.dim
        if not axes or not axes[-1].HasField("dim_value"):  # weights of attention over keys, which are no classes
            outputs[value.name].pop("same_choices", None)
    return model.quantized(int8_layers), {
        "rows": sum(map(rows_of, batches)),
        "int8_layers": int8_layers,
        "float32_layers": float32_layers,
        "outputs": outputs,
        "limit": limit,
    }


def check_limit(report: ParityReport) -> None:
    """Raise a `ParityError` if a calibrated file differs from float32 by more than the user's limit."""
    about = (report.precision or {}).get("calibration")
    if about is None or about["limit"] is None:
        return
    for name, error in about["outputs"].items():
        if error["share"] > about["limit"]:
            off = f"{error['share']:.2g} of its largest number on `calibration`, by {error['mean']:.2g} in the mean"
            raise ParityError(
                f"In int8 output `{name}` is off by up to {off}, and `limit` allows {about['limit']:g}. Calibrate on "
                "more rows of what the model will be used on, allow more, or take float16.",
                report,
            )


def _outputs(file: Path, batches: Sequence[Arrays]) -> list[Arrays]:
    session = open_session(file)
    return [run_session(session, inputs) for inputs in batches]
