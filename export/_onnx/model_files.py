"""Load and save ONNX models, with weights beyond 2 GiB in a second file."""

from pathlib import Path

import onnx

from .._errors import ExportError
from .external_data import add_weights, extract_external_weights, write_external_data
from .traced_model import TracedModel


def load_model(path: Path) -> TracedModel:
    """Load a model, with the weights of the second file as arrays that are mapped from the file."""
    model = onnx.load(str(path), load_external_data=False)
    return TracedModel(model, weights=extract_external_weights(model.graph, path.parent))


def save_model(traced: TracedModel, path: Path, *, check: bool = True) -> None:
    """Save a model and its weights, weights beyond 2 GiB to a second file, and check both files.

    Raises:
        ExportError: If onnx.checker rejects the file.
    """
    path.write_bytes(add_weights(traced.model, traced.weights).SerializeToString())
    write_external_data(path.parent, traced.weights)
    if not check:
        return
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"The ONNX file does not pass onnx's full check: {error}") from error
