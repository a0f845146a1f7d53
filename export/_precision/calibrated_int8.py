"""Static int8: calibrate, choose the layers to quantize, measure the error."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class CalibratedFile(NamedTuple):
    """An int8 file in QDQ form.

    Attributes:
        traced: The file.
        about: For the parity report: `rows`, how many it was calibrated on; `int8_layers` and `float32_layers`, those
            that became int8, and those that could have and stay; `outputs`, how far each is from float32, as `apart`
            gives it; `limit`, as it was asked for.
    """

    traced: Traced
    about: dict[str, Any]


def to_calibrated_int8(
    float32: Path, batches: Sequence[Arrays], limit: float | None, folder: Path, step: Progress
) -> CalibratedFile:
    """Return an int8 file, and how far it is from the float32 file.

    Args:
        float32: The checked file.
        batches: The user's arrays.
        limit: How far an output may be, as a share of its largest number, if that was said.
        folder: Where files are written that are not kept.
        step: Is told what is being done.

    Raises:
        UnsupportedModelError: onnxruntime cannot calibrate or quantize the model.
    """
    step("Running the float32 file on the calibration arrays")
    source, tried = read(float32), folder / "tried.onnx"
    model = calibrated(source, batches, folder)
    layers = [*model.layers]

    def measured(taken: Collection[str], inputs: Sequence[Arrays], expected: Sequence[Arrays]) -> Apart:
        write(model.quantized(taken), tried, check=False)
        return apart(expected, _outputs(tried, inputs))

    few = first_rows(batches, TRIED_ROWS)
    of_few = _outputs(float32, few)
    step("Looking for layers that int8 does harm")
    left = left_in_float32(layers, lambda taken: measured(taken, few, of_few), limit)
    taken = [layer for layer in layers if layer not in left]
    outputs = measured(taken, batches, _outputs(float32, batches))
    for value in source.model.graph.output:
        axes = value.type.tensor_type.shape.dim
        if not axes or not axes[-1].HasField("dim_value"):  # of weights of attention, which are no classes
            outputs[value.name].pop("same_choices", None)
    about = {
        "rows": sum(map(rows_of, batches)),
        "int8_layers": taken,
        "float32_layers": left,
        "outputs": outputs,
        "limit": limit,
    }
    return CalibratedFile(model.quantized(taken), about)


def check_limit(report: ParityReport) -> None:
    """Check that a calibrated file is as near to float32 as was asked.

    Raises:
        ParityError: An output is further off.
    """
    about = (report.precision or {}).get("calibration")
    if about is None or about["limit"] is None:
        return
    for name, found in about["outputs"].items():
        if found["share"] > about["limit"]:
            off = f"{found['share']:.2g} of its largest number on `calibration`, by {found['mean']:.2g} in the mean"
            raise ParityError(
                f"In int8 output `{name}` is off by up to {off}, and `limit` allows {about['limit']:g}. Calibrate on "
                "more rows of what the model will be used on, allow more, or take float16.",
                report,
            )


def _outputs(file: Path, batches: Sequence[Arrays]) -> list[Arrays]:
    session = open_session(file)
    return [run_session(session, inputs) for inputs in batches]
