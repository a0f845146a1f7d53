"""Read a state dict: a flat or nested mapping from weight names to arrays."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._layouts import Array

# In a message, so that it stays readable for the state of a large model.
MAX_NAMES = 10

# A TensorFlow checkpoint also has the slots of optimizers, and a Keras state the seeds of random numbers.
_IGNORED_NAMES = re.compile(r"/\.OPTIMIZER_SLOT/|seed_generator_state")
_SUFFIX = re.compile(r"(/\.ATTRIBUTES/VARIABLE_VALUE)?(:\d+)?$")


def entries_under_prefix(prefix: str, state: Any, source: str) -> dict[str, tuple[str, Any]]:
    """Return (name, value) of each entry under a prefix, by the dotted name without the prefix."""
    dotted_prefix = _to_dotted_name(prefix, source)
    dotted_prefix = f"{dotted_prefix}." if dotted_prefix else ""
    received = [(name, value) for name, value in _flatten(state) if not _IGNORED_NAMES.search(name)]
    values: dict[str, tuple[str, Any]] = {}
    for name, value in received:
        dotted = _to_dotted_name(name, source)
        key = dotted.removeprefix(dotted_prefix)
        if not dotted.startswith(dotted_prefix):
            continue
        if key in values:
            raise ValueError(f"`state` must name each weight once. Received: `{values[key][0]}` and `{name}`.")
        values[key] = name, value
    if received and not values:
        raise ValueError(
            f"`prefix` must be the beginning of names in the state. Received: prefix={prefix!r}, "
            f"names {format_names(name for name, _ in received)}."
        )
    return values


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
    """Return a name with dots between its parts, without the suffix of checkpoints and the prefix of Flax."""
    dotted = _SUFFIX.sub("", name).replace("/", ".").strip(".")
    return re.sub(r"^params(\.|$)", "", dotted) if source == "flax" else dotted


def format_names(names: Iterable[str]) -> str:
    """Format up to `MAX_NAMES` names for a message."""
    names = list(names)
    suffix = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (", ".join(f"`{name}`" for name in names[:MAX_NAMES]) or "none") + suffix


def to_array(name: str, value: Any) -> Array:
    """Convert a value to an array of float32, or of float64 if it has that precision."""
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
