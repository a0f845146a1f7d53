"""Checks of optional packages, with the install command in the error message."""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator

from ._errors import ExportError

# If an onnxruntime is installed, the command names an extra without it: onnxruntime and onnxruntime-gpu install files
# of the same names, and the second one overwrites the first.
_EXTRAS_WITHOUT_RUNTIME = {"export": "convert", "runtime": "tools"}
_EXTRAS_WITH_RUNTIME = {reduced: full for full, reduced in _EXTRAS_WITHOUT_RUNTIME.items()}


@contextlib.contextmanager
def require_extra(extra: str, purpose: str) -> Iterator[None]:
    """Turn an `ImportError` in the block into an `ExportError` with the command that installs `extra`."""
    try:
        yield
    except ImportError as error:
        raise ExportError(
            f"{purpose} needs more packages ({error}). Install them: {_fix_command(error, extra)}"
        ) from error


def check_export_packages() -> None:
    """Raise `ExportError` if a package that an export needs is not installed."""
    # Importing these packages, to find out, would take seconds.
    missing = [name for name in ("tensorflow", "tf2onnx", "onnx", "onnxruntime") if not is_installed(name)]
    if missing:
        raise ExportError(f"An export needs {', '.join(missing)}. Install what is missing: {install_command('export')}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    replacements = _EXTRAS_WITHOUT_RUNTIME if is_installed("onnxruntime") else _EXTRAS_WITH_RUNTIME
    return f'pip install "keras-attn[{replacements.get(extra, extra)}]"'


def _fix_command(error: ImportError, extra: str) -> str:
    """Return the remedy for a failed import. No extra installs JAX or torch, the other backends of Keras."""
    if error.name in ("jax", "torch"):
        return f"pip install {error.name}, or unset KERAS_BACKEND"
    return install_command(extra)


def is_installed(module: str) -> bool:
    """Return True if a module can be imported, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None
