"""onnxruntime sessions on one execution provider, without fallback to another."""

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .names import Arrays, BundleError, Case, ExportError, ProviderError, first_line
from .providers import PROVIDERS, provider_of

# The exporter's name of a node in an attention layer; onnxruntime's names of fused nodes contain it.
_ATTENTION_NODE = re.compile(r"keras_attn/(?P<layer>.+)/\w+_\d+/(?P<node>[A-Za-z]+_\d+)")


def check_provider(provider: str) -> Any:
    """Return the onnxruntime module; raise `ProviderError` if it is not installed or lacks the provider."""
    name = provider_of(provider).name
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise ProviderError(f"onnxruntime cannot be imported ({error}).") from error
    if name not in (available := ort.get_available_providers()):
        raise ProviderError(f"This onnxruntime has no {name}, only {', '.join(available)}.")
    return ort


def open_session(model: Path, provider: str = "cpu", session_options: Any = None) -> Any:
    """Open an `onnxruntime.InferenceSession` on exactly one provider; raise `ProviderError` or `BundleError`."""
    ort, entry = check_provider(provider), provider_of(provider)
    options = ort.SessionOptions() if session_options is None else session_options
    if session_options is None:
        options.log_severity_level = 4  # onnxruntime also raises errors as exceptions
    for name, value in entry.session_options.items():
        setattr(options, name, value)
    messages = io.StringIO()
    if entry is PROVIDERS["cuda"] and hasattr(ort, "preload_dlls"):
        with contextlib.redirect_stdout(messages):  # onnxruntime prints the libraries that it cannot load
            ort.preload_dlls()  # CUDA and cuDNN from wheels, or from PyTorch
    providers = [(entry.name, dict(entry.options))]
    try:
        session = ort.InferenceSession(str(model), options, providers, enable_fallback=0)  # no second try on the CPU
    except Exception as error:
        raise BundleError(f"onnxruntime {ort.__version__} cannot load {model}: {first_line(error)}") from error
    if (actual := session.get_providers()[0]) != entry.name:
        reason = f" {line}." if (line := first_line(messages.getvalue())) else ""
        raise ProviderError(f"onnxruntime fell back to {actual} although {entry.name} was requested.{reason}")
    return session


def run_session(session: Any, inputs: Mapping[str, np.ndarray], options: Any = None) -> Arrays:
    """Run a session, with `onnxruntime.RunOptions` or None, and return its outputs by name; raise `ExportError`."""
    names = [output.name for output in session.get_outputs()]
    try:
        outputs = session.run(names, dict(inputs), options)
    except Exception as error:
        shapes = ", ".join(f"`{name}` {array.shape}" for name, array in inputs.items())
        raise ExportError(f"onnxruntime cannot run the model on inputs {shapes}: {first_line(error)}") from error
    if non_tensors := [name for name, value in zip(names, outputs, strict=True) if not isinstance(value, np.ndarray)]:
        raise ExportError(f"Output `{non_tensors[0]}` of the model is not a tensor.")
    return dict(zip(names, outputs, strict=True))


def run_cases(model: Path, cases: Iterable[Case], provider: str = "cpu", options: Any = None) -> list[Arrays]:
    """Run all golden cases and return their outputs; raise `ProviderError` if another provider computed attention."""
    if provider_of(provider) is PROVIDERS["cpu"]:
        session = open_session(model)
        return [run_session(session, case.inputs, options) for case in cases]
    session_options = check_provider(provider).SessionOptions()
    session_options.log_severity_level, session_options.enable_profiling = 4, True
    with tempfile.TemporaryDirectory() as folder:
        session_options.profile_file_prefix = str(Path(folder, "profile"))
        session = open_session(model, provider, session_options)
        outputs = [run_session(session, case.inputs, options) for case in cases]
        check_placement(Path(session.end_profiling()), provider)
    return outputs


def check_placement(profile: Path, provider: str) -> int:
    """Return the number of attention nodes in a profile; raise `ProviderError` if another provider computed any.

    `session.get_providers()` does not show this. Nodes that compute shapes are ignored: they always run on the CPU.
    """
    events = [event for event in json.loads(profile.read_text(encoding="utf-8")) if event.get("cat") == "Node"]
    expected = provider_of(provider).name
    used_providers = {event.get("args", {}).get("provider") for event in events} - {None}
    if expected not in used_providers:
        raise ProviderError(f"No node ran on {expected}: onnxruntime placed them on {sorted(used_providers)}.")
    nodes: set[str] = set()
    misplaced: dict[tuple[str, str], dict[str, None]] = {}
    for event in events:
        arguments, match = event.get("args", {}), _ATTENTION_NODE.search(event["name"])
        inputs = [pair for entry in arguments.get("input_type_shape", ()) for pair in entry.items()]
        is_float = any(len(shape) > 1 and ("float" in dtype or dtype == "double") for dtype, shape in inputs)
        if match and is_float and arguments.get("op_name") not in ("Shape", "Size"):
            nodes.add(match[0])
            if (actual := arguments.get("provider", "")) != expected:
                misplaced.setdefault((match["layer"], actual), {})[match["node"]] = None
    if misplaced:
        parts = [f"of layer `{layer}` {', '.join(names)} on {actual}" for (layer, actual), names in misplaced.items()]
        raise ProviderError(f"Attention did not run on {expected} alone: {'; '.join(parts)}.")
    return len(nodes)
