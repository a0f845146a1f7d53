"""Validation of constructor arguments and call flags: TypeError for a type, ValueError for a value."""

import math
from numbers import Integral, Real
from typing import Any

from .._shapes import dtype_of
from .._types import Window


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_number(name: str, value: Any, kind: str = "a number") -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be {kind}. Received: {name} of type {type(value).__name__}.")


def check_dropout(dropout: Any) -> float:
    """Return the dropout rate as a float in [0, 1)."""
    _check_number("dropout", dropout)
    if not 0 <= float(dropout) < 1:
        raise ValueError(
            f"`dropout` must be at least 0 and less than 1. Received: dropout={dropout}. "
            "It is the share of weights that is dropped, not a percentage."
        )
    return float(dropout)


def check_seed(seed: Any) -> int | None:
    """Return the seed as an int, or None."""
    if seed is not None and not _is_integer(seed):
        raise TypeError(f"`seed` must be an integer or None. Received: seed of type {type(seed).__name__}.")
    return None if seed is None else int(seed)


def check_scale(scale: Any) -> float | None:
    """Return the scale of dot products as a finite float, or None."""
    if scale is None:
        return None
    _check_number("scale", scale, "a number or None")
    if not math.isfinite(scale):
        raise ValueError(f"`scale` must be finite. Received: scale={scale}. Leave it None for 1/sqrt(D).")
    return float(scale)


def check_positive(name: str, value: Any) -> float:
    """Return `value` as a finite float above 0."""
    _check_number(name, value)
    if not 0 < float(value) < math.inf:
        raise ValueError(f"`{name}` must be finite and above 0. Received: {name}={value}.")
    return float(value)


def check_window(window: Any) -> Window | None:
    """Return the window as a pair of nonnegative integers or None, or None for no window."""
    if window is None:
        return None
    bounds = tuple(window) if isinstance(window, list | tuple) else ()
    if len(bounds) != 2 or not all(bound is None or (_is_integer(bound) and bound >= 0) for bound in bounds):
        raise ValueError(
            "`window` must be a pair (left, right): numbers of unmasked keys before and after a query's own position, "
            f"each an integer of at least 0, or None for no bound. Received: window={window!r}."
        )
    left, right = (None if bound is None else int(bound) for bound in bounds)
    return left, right


def check_positive_integer(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1."""
    if not _is_integer(value):
        raise TypeError(f"`{name}` must be an integer. Received: {name} of type {type(value).__name__}.")
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Return a constructor argument as a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False. Received: {name} of type {type(value).__name__}.")
    return value


def check_call_flag(name: str, value: Any) -> bool:
    """Return a call argument as a bool; accept None (False), 0, 1 and scalar boolean arrays and tensors."""
    if value is None:
        return False
    is_boolean = hasattr(value, "dtype") and dtype_of(value) == "bool" and len(value.shape) == 0
    if not is_boolean and not (isinstance(value, Integral) and value in (0, 1)):
        raise TypeError(f"`{name}` must be True or False. Received: {name} of type {type(value).__name__}.")
    return bool(value)


def check_block_size(name: str, value: Any) -> Any:
    """Return `value` as an int of at least 1, `"auto"`, or None."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    if isinstance(value, str):
        raise ValueError(f'`{name}` must be an integer, "auto" or None. Received: {name}={value!r}.')
    return check_positive_integer(name, value)
