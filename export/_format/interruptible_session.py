"""Wrappers of `session` for the package: signals interrupt runs, and errors name a remedy."""

import contextlib
import ctypes
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import session
from .names import Arrays, BundleError, Case, ExportError, ProviderError, first_line
from .providers import PROVIDERS, provider_of, short_name
from .stop_signals import run_interruptibly

# `verify.py` contains `session` without these wrappers, so that it stays short.

# How to install a provider, as the end of a sentence. Providers without an entry need a custom build of onnxruntime.
_INSTALL_COMMANDS = {
    "cpu": 'run pip install "keras-attn[runtime]"',
    "cuda": 'run pip install "keras-attn[gpu]"',
    "openvino": 'run pip install "keras-attn[openvino]"',
    "tensorrt": 'run pip install "keras-attn[gpu]" and install TensorRT',
    "directml": "install onnxruntime-directml",
    "coreml": "install onnxruntime for macOS",
    "webgpu": "install onnxruntime-webgpu",
    "migraphx": "install onnxruntime-migraphx",
    "qnn": "install onnxruntime-qnn",
}
# Errors of onnxruntime without a driver, without a device, or for a device number that does not exist.
_DEVICE_ERROR = re.compile(r"(CUDA|CUDNN|CUBLAS)\w* failure|CUDA driver|CUDA-capable|Invalid device ID", re.IGNORECASE)
# Messages of OpenVINO's provider contain names of C++ functions, then this marker, then the reason.
_OPENVINO_MARKER = "[OpenVINO-EP]"


def check_provider(provider: str) -> Any:
    """Return the onnxruntime module, or raise `ProviderError` if it is not installed or lacks the provider."""
    try:
        return session.check_provider(provider)
    except ProviderError as error:
        raise ProviderError(f"{error}{_format_install_hint(error, provider)}") from error.__cause__
    # pip leaves an empty folder `onnxruntime` if one of two installed packages is uninstalled.
    except AttributeError as error:
        raise ProviderError(
            "onnxruntime is broken: onnxruntime and onnxruntime-gpu were installed together. Uninstall both, then "
            "install one of them: onnxruntime for CPUs, onnxruntime-gpu for GPUs."
        ) from error


def _format_install_hint(error: ProviderError, provider: str) -> str:
    if isinstance(error.__cause__, ImportError):
        return (
            ' Run pip install "keras-attn[runtime]", or install onnxruntime alone; for a GPU "keras-attn[gpu]", or '
            "onnxruntime-gpu."
        )
    try:
        entry = provider_of(provider)
    except ProviderError:
        return ""
    command = _INSTALL_COMMANDS.get(short_name(provider), f"install an onnxruntime built with {entry.name}")
    return f" Packages of onnxruntime overwrite each other: uninstall it, then {command}."


def open_session(model: Path, provider: str = "cpu", *, threads: int | None = None, session_options: Any = None) -> Any:
    """Open an `onnxruntime.InferenceSession` on exactly one provider, with a number of threads for timing.

    Raises:
        ProviderError: If the provider is missing, has no device, or onnxruntime used another one.
        BundleError: If onnxruntime cannot load the file.
    """
    ort = check_provider(provider)
    if threads is not None:
        if session_options is None:
            session_options = ort.SessionOptions()
            session_options.log_severity_level = 4  # fatal errors only: other errors are raised as well
        session_options.intra_op_num_threads = threads
        # Spinning threads of one session would slow down the other session, if two are timed in turns.
        session_options.add_session_config_entry("session.force_spinning_stop", "1")
    with _add_remedies(provider):
        return run_interruptibly(lambda _: session.open_session(model, provider, session_options))


def run_session(ort_session: Any, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run a session and return its outputs by name; raise `ExportError` if it fails (an index outside an embedding)."""
    try:
        outputs: Arrays = run_interruptibly(lambda options: session.run_session(ort_session, inputs, options))
    except ExportError as error:
        if PROVIDERS["cuda"].name in ort_session.get_providers():
            raise _explain_run_error(error) from error.__cause__
        raise
    return outputs


def run_cases(model: Path, cases: Iterable[Case], provider: str = "cpu") -> list[Arrays]:
    """Return the outputs of all golden cases; raise `ProviderError` if a provider did not compute all attention."""
    check_provider(provider)
    with _add_remedies(provider):
        outputs: list[Arrays] = run_interruptibly(lambda options: session.run_cases(model, cases, provider, options))
    return outputs


@contextlib.contextmanager
def _add_remedies(provider: str) -> Iterator[None]:
    """Add the reason and the remedy to errors of opening and running a session."""
    try:
        yield
    except BundleError as error:
        raise _explain_loading_error(error, provider) from error.__cause__
    except ProviderError as error:
        if "fell back" not in str(error):  # text of the error in `session.open_session`
            raise
        raise ProviderError(" ".join(filter(None, [str(error), *_explain_cuda_fallback(error, provider)]))) from error
    except ExportError as error:
        if short_name(provider) == "cuda":
            raise _explain_run_error(error) from error.__cause__
        raise


def _explain_run_error(error: ExportError) -> ExportError:
    """Return the error of a run on CUDA; if CUDA lacks an operator, with a remedy."""
    if "NOT_IMPLEMENTED" not in str(error).upper():
        return error
    return ProviderError(f"{error} Export with `provider='cuda'`, which uses only operators that CUDA has.")


def _explain_loading_error(error: BundleError, provider: str) -> ExportError:
    """Return the error for a file that onnxruntime could not load, or for a missing device."""
    cause, short = str(error.__cause__), short_name(provider)
    subject, _, reason = str(error).partition(": ")
    if short == "cpu":
        return error
    if match := _DEVICE_ERROR.search(cause):
        # The message begins with the position in onnxruntime's C++ code, and ends with the name of the host.
        reason = first_line(cause[match.start() :]).partition(" ;")[0]
        release = subject.partition(" cannot load ")[0]
        return ProviderError(f"{release} cannot use {provider_of(provider).name}: {reason}")
    if _OPENVINO_MARKER in cause:
        reason = " ".join(cause.rpartition(_OPENVINO_MARKER)[2].split())
    if "node not found in graph cache" in cause:
        remedy = (
            "OpenVINO's provider supports no `Loop`, and no `If` that reads values from outside. An export with "
            "`provider='openvino'` writes attention without both. If the model itself has them, use provider 'cpu'."
        )
    elif short == "cuda":
        return error
    else:
        remedy = f"Export with `provider={short!r}`: the file then has standard operators only."
    return BundleError(f"{subject}: {reason}. {remedy}")


def _explain_cuda_fallback(error: ProviderError, provider: str) -> list[str]:
    """Return the reasons for a fallback from CUDA: the CUDA release, the missing library, and its package."""
    if short_name(provider) != "cuda":
        return []
    import onnxruntime as ort

    release = getattr(ort, "cuda_version", "")
    return [
        f"It is built for CUDA {release}." if release else "",
        _find_missing_library(ort) if str(error).endswith("was requested.") else "",
        'Its libraries come with pip install "onnxruntime-gpu[cuda,cudnn]".',
    ]


def _find_missing_library(ort: Any) -> str:
    """Return the reason if Linux cannot load the CUDA library of onnxruntime, which only prints the reason."""
    library = Path(getattr(ort, "__file__", None) or "").parent / "capi" / "libonnxruntime_providers_cuda.so"
    if sys.platform == "linux":
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            # An undefined symbol is no cause: onnxruntime defines these symbols before it loads the library.
            return "" if "undefined symbol" in str(error) else first_line(error)
    return ""
