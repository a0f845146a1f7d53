"""Build onnxruntime session options from keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .input_arrays import InputError


def build_session_options(ort: Any, options: Mapping[str, Any], config: Mapping[str, str]) -> Any:
    """Build an `onnxruntime.SessionOptions` from attributes and config entries; raise `InputError` if one fails."""
    valid = [name for name in dir(ort.SessionOptions) if isinstance(getattr(ort.SessionOptions, name), property)]
    if unknown := [name for name in options if name not in valid]:
        raise InputError(
            f"Session options {unknown} are unknown. The SessionOptions of onnxruntime {ort.__version__} have {valid}."
        )
    result = ort.SessionOptions()
    # Errors are raised as well; lower levels also log a failed attempt to fold constants, which is harmless.
    result.log_severity_level = 4
    for name, value in options.items():
        try:
            setattr(result, name, value)
        except TypeError as error:
            raise InputError(f"Session option `{name}` has a value of the wrong type: {value!r}.") from error
    for key, entry in config.items():
        try:
            result.add_session_config_entry(key, entry)
        except RuntimeError as error:
            raise InputError(f"`config` has an entry that onnxruntime rejects: {key[:80]!r}.") from error
    return result


def validate_config(config: Any) -> dict[str, str]:
    """Return the config entries of a session; raise `InputError` if they are not a mapping of strings."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InputError(f"`config` must be a mapping from strings to strings. Received: {type(config).__name__}.")
    for key, entry in config.items():
        if not (isinstance(key, str) and isinstance(entry, str)):
            raise InputError(f"`config` must map strings to strings. Received: {key!r}: {entry!r}.")
    return dict(config)
