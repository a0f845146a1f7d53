"""Read a state dict: a flat or nested mapping from weight names to arrays."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ._layouts import Array

_SHOWN = 10  # names in a message

# A TensorFlow checkpoint holds what optimizers keep beside each weight, and Keras the state of random numbers.
_NO_WEIGHT = re.compile(r"/\.OPTIMIZER_SLOT/|seed_generator_state")
_SUFFIX = re.compile(r"(/\.ATTRIBUTES/VARIABLE_VALUE)?(:\d+)?$")


def values_below(prefix: str, state: Any, source: str) -> dict[str, tuple[str, Any]]:
    """Names as received and values of what is below the prefix, by the rest of the name with dots between its words."""
    start = _dotted(prefix, source)
    start = f"{start}." if start else ""
    received = [(name, value) for name, value in _flatten(state) if not _NO_WEIGHT.search(name)]
    values: dict[str, tuple[str, Any]] = {}
    for name, value in received:
        dotted = _dotted(name, source)
        rest = dotted.removeprefix(start)
        if not dotted.startswith(start):
            continue
        if rest in values:
            raise ValueError(f"`state` must name each weight once. Received: `{values[rest][0]}` and `{name}`.")
        values[rest] = name, value
    if received and not values:
        raise ValueError(
            f"`prefix` must be what names in the state begin with. Received: prefix={prefix!r}, "
            f"names {listed(name for name, _ in received)}."
        )
    return values


def _flatten(state: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Names with slashes between their words, and values."""
    if not isinstance(state, Mapping):
        raise ValueError(f"`state` must be a mapping of names to arrays. Received: type {type(state).__name__}.")
    for key, value in state.items():
        words = (*path, *map(str, key if isinstance(key, tuple) else (key,)))
        if isinstance(value, Mapping):
            yield from _flatten(value, words)
        else:
            yield "/".join(words), value


def _dotted(name: str, source: str) -> str:
    """A name with dots between its words, without the parts that every name has."""
    dotted = _SUFFIX.sub("", name).replace("/", ".").strip(".")
    return re.sub(r"^params(\.|$)", "", dotted) if source == "flax" else dotted


def listed(names: Iterable[str]) -> str:
    """The first names, for a message."""
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(f"`{name}`" for name in names[:_SHOWN]) or "none") + more


def array_of(name: str, value: Any) -> Array:
    """The value as an array of float32 at least."""
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(_no_numbers(name, value)) from error
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise ValueError(_no_numbers(name, value))
    return array.astype(np.result_type(array.dtype, np.float32))


def _no_numbers(name: str, value: Any) -> str:
    kind = type(value).__name__ + (f" of dtype {value.dtype}" if hasattr(value, "dtype") else "")
    return (
        f"`{name}` must be an array of real numbers. Received: {kind}. Make it one first: "
        "`.detach().cpu().float().numpy()` for a tensor of torch, `.asnumpy()` for one of MXNet."
    )
