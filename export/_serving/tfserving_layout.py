"""What TensorFlow Serving reads: a version folder with the SavedModel."""

from __future__ import annotations

import shlex
from pathlib import Path

from .._bundle.folder import SAVED_MODEL
from .._errors import BundleError, ExportError
from .._loaded_bundle import Bundle
from .copying import copy_files, saved_model_files
from .specs import unchecked_multiples

SERVER = "TensorFlow Serving"
OPEN = "it listens on all interfaces, for want of an option: keep the ports 8500 and 8501 from others"


def fill(folder: Path, bundle: Bundle, name: str, provider: str) -> list[str]:
    """Fill the folder of a model; return what its user should know."""
    if provider != "cpu":
        raise ExportError(f"{SERVER} takes the GPU by itself where it is built for one: leave out the provider.")
    files = saved_model_files(bundle)
    if not files:
        raise BundleError(f"{bundle.path} has no {SAVED_MODEL}, which {SERVER} reads. Export the model with it.")
    copy_files(bundle, files, folder / "1")
    return [OPEN, *unchecked_multiples(bundle.entries, SERVER)]


def command(repository: Path, name: str) -> str:
    """Return the command that starts the server."""
    base = shlex.quote(f"--model_base_path={repository / name}")
    return f"tensorflow_model_server --port=8500 --rest_api_port=8501 --model_name={name} {base}"
