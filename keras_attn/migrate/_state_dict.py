"""Read a state dict: a flat or nested mapping from weight names to arrays."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._layouts import Array

# Largest number of names in an error message. A large model has hundreds of weights.
MAX_NAMES = 10

# These are not weights: a TensorFlow checkpoint also has optimizer slots, and a Keras state also has random seeds.
_IGNORED_NAMES = re.compile(r"/\.OPTIMIZER_SLOT/|seed_generator_state")
# TensorFlow appends the first suffix to names of variables in checkpoints, and the second, as ":0", in graphs.
_VARIABLE_SUFFIX = re.compile(r"(/\.ATTRIBUTES/VARIABLE_VALUE)?(:\d+)?$")


def select_entries_under_prefix(prefix: str, state: Any, source: str) -> dict[str, tuple[str, Any]]:
    """Map dotted names without the prefix to pairs (name in `state`, array). `source` is a framework, as `"flax"`."""
    dotted_prefix = _to_dotted_name(prefix, source)
    dotted_prefix = f"{dotted_prefix}." if dotted_prefix else ""
    entries = [(name, value) for name, value in _flatten(state) if not _IGNORED_NAMES.search(name)]
    entries_by_key: dict[str, tuple[str, Any]] = {}
    for name, value in entries:
        dotted_name = _to_dotted_name(name, source)
        key = dotted_name.removeprefix(dotted_prefix)
        if not dotted_name.startswith(dotted_prefix):
            continue
        if key in entries_by_key:
            raise ValueError(f"`state` must name each weight once. Received: `{entries_by_key[key][0]}` and `{name}`.")
        entries_by_key[key] = name, value
    if entries and not entries_by_key:
        raise ValueError(
            f"`prefix` must be the beginning of names in the state. Received: prefix={prefix!r}, "
            f"names {format_names(name for name, _ in entries)}."
        )
    return entries_by_key


def _flatten(state: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the values of a nested state, with names joined by slashes."""
    if not isinstance(state, Mapping):
        raise ValueError(f"`state` must be a mapping of names to arrays. Received: type {type(state).__name__}.")
    for key, value in state.items():
        parts = (*path, *map(str, key if isinstance(key, tuple) else (key,)))
        if isinstance(value, Mapping):
            yield from _flatten(value, parts)
        else:
            yield "/".join(parts), value


def _to_dotted_name(name: str, source: str) -> str:
    """Return a name with dots between its parts, without `_VARIABLE_SUFFIX` and without the "params" of Flax."""
    dotted_name = _VARIABLE_SUFFIX.sub("", name).replace("/", ".").strip(".")
    return re.sub(r"^params(\.|$)", "", dotted_name) if source == "flax" else dotted_name


def format_names(names: Iterable[str]) -> str:
    """Format up to `MAX_NAMES` names for a message."""
    names = list(names)
    suffix = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (", ".join(f"`{name}`" for name in names[:MAX_NAMES]) or "none") + suffix


def to_array(name: str, value: Any) -> Array:
    """Convert an array to float32, or to float64 if its dtype is float64 or an integer of at least 32 bits."""
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(_not_numeric_message(name, value)) from error
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise ValueError(_not_numeric_message(name, value))
    return array.astype(np.result_type(array.dtype, np.float32))


def _not_numeric_message(name: str, value: Any) -> str:
    type_name = type(value).__name__ + (f" of dtype {value.dtype}" if hasattr(value, "dtype") else "")
    return (
        f"`{name}` must be an array of real numbers. Received: {type_name}. Convert it first: "
        "`.detach().cpu().float().numpy()` for a tensor of torch, `.asnumpy()` for one of MXNet."
    )
