"""Load and save ONNX models; weights beyond 2 GiB are in a second file."""

from pathlib import Path

import onnx

from .._errors import ExportError
from .external_data import take_out, with_weights, write_data
from .traced_model import Traced


def read(path: Path) -> Traced:
    """Return the model in a file, with the weights of the second file as arrays that are read when they are used."""
    model = onnx.load(str(path), load_external_data=False)
    return Traced(model, weights=take_out(model.graph, path.parent))


def write(traced: Traced, path: Path, *, check: bool = True) -> None:
    """Write a model and its weights, weights beyond 2 GiB to a second file, and check both files in full.

    Raises:
        ExportError: If onnx's checker finds the file invalid.
    """
    path.write_bytes(with_weights(traced.model, traced.weights).SerializeToString())
    write_data(path.parent, traced.weights)
    if not check:
        return
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"The ONNX file does not pass onnx's full check: {error}") from error
