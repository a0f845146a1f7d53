"""Checks for optional packages, with the install command in the error message."""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator

from ._errors import ExportError

# Whoever has an onnxruntime gets the same without one: two of its packages overwrite each other.
_EXTRAS_WITHOUT_RUNTIME = {"export": "convert", "runtime": "tools"}
_EXTRAS_WITH_RUNTIME = {bare: whole for whole, bare in _EXTRAS_WITHOUT_RUNTIME.items()}


@contextlib.contextmanager
def needing(extra: str, purpose: str) -> Iterator[None]:
    """Import within it what `extra` installs.

    Raises:
        ExportError: An import fails; the message says how to install the extra.
    """
    try:
        yield
    except ImportError as error:
        raise ExportError(
            f"{purpose} needs more packages ({error}). Install them: {_fix_command(error, extra)}"
        ) from error


def check_export_packages() -> None:
    """Check that the packages of an export are installed, without importing them, which takes seconds.

    Raises:
        ExportError: Some are not; the message names them.
    """
    missing = [name for name in ("tensorflow", "tf2onnx", "onnx", "onnxruntime") if not is_installed(name)]
    if missing:
        raise ExportError(f"An export needs {', '.join(missing)}. Install what is missing: {command('export')}")


def command(extra: str) -> str:
    """Return the command that installs an extra."""
    replacements = _EXTRAS_WITHOUT_RUNTIME if is_installed("onnxruntime") else _EXTRAS_WITH_RUNTIME
    return f'pip install "keras-attn[{replacements.get(extra, extra)}]"'


def _fix_command(error: ImportError, extra: str) -> str:
    """Return the command that installs what could not be imported; no extra brings another backend of Keras's."""
    if error.name in ("jax", "torch"):
        return f"pip install {error.name}, or unset KERAS_BACKEND"
    return command(extra)


def is_installed(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None
