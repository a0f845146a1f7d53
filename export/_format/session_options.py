"""Build onnxruntime session options from keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .input_arrays import InputError


def session_options(ort: Any, options: Mapping[str, Any], config: Mapping[str, str]) -> Any:
    """Return an `onnxruntime.SessionOptions` with attributes and config entries, or raise an `InputError`."""
    known = [name for name in dir(ort.SessionOptions) if isinstance(getattr(ort.SessionOptions, name), property)]
    if unknown := [name for name in options if name not in known]:
        raise InputError(
            f"Session options {unknown} are unknown. The SessionOptions of onnxruntime {ort.__version__} have {known}."
        )
    result = ort.SessionOptions()
    result.log_severity_level = 4  # errors are raised as well; lower levels report constant folding as a fault
    for name, value in options.items():
        try:
            setattr(result, name, value)
        except TypeError as error:
            raise InputError(f"Session option `{name}` does not take {value!r}.") from error
    for key, entry in config.items():
        try:
            result.add_session_config_entry(key, entry)
        except RuntimeError as error:
            raise InputError(f"`config` has an entry that onnxruntime does not take: {key[:80]!r}.") from error
    return result


def checked_config(config: Any) -> dict[str, str]:
    """Return the config entries of a session, or raise an `InputError` if they are no mapping of strings."""
    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise InputError(f"`config` must be a mapping from strings to strings. Received: {type(config).__name__}.")
    for key, entry in config.items():
        if not (isinstance(key, str) and isinstance(entry, str)):
            raise InputError(f"`config` must map strings to strings. Received: {key!r}: {entry!r}.")
    return dict(config)
