"""Load an ONNX graph without external data; onnx is imported on first use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .._dependencies import require_extra
from .._errors import BundleError
from .._format.names import MODEL

if TYPE_CHECKING:
    import onnx


def load_graph(file: Path) -> onnx.ModelProto:
    """Load the graph of a file without its external data.

    Raises:
        BundleError: If onnx cannot read the file.
        ExportError: If onnx is not installed.
    """
    with require_extra("runtime", "Reading the graph of an ONNX file"):
        import onnx
    try:
        return onnx.load(str(file), load_external_data=False)
    except Exception as error:
        # A missing file, or protobuf's own exception, whose class depends on the installed implementation
        raise BundleError(f"onnx cannot read {file}: {error}") from error


def write_with_linked_weights(model: onnx.ModelProto, folder: Path, scratch: Path) -> Path:
    """Write a model of `folder` into the folder `scratch`, with links to its external data, and return the file.

    The folder `scratch` must exist as long as sessions of the file.
    """
    file = scratch / MODEL
    file.write_bytes(model.SerializeToString())
    entries = (entry for weight in model.graph.initializer for entry in weight.external_data)
    for name in {entry.value for entry in entries if entry.key == "location"}:
        try:
            # A hard link: onnxruntime follows no symbolic link out of the folder
            os.link(folder / name, scratch / name)
        except OSError:  # another filesystem
            shutil.copyfile(folder / name, scratch / name)
    return file
