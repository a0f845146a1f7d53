"""Validate constructor arguments of layers."""

import math
from numbers import Integral, Real
from typing import Any

from .._shapes import dtype_of
from .._types import Window


def _check_number(name: str, value: Any, kind: str = "a number") -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be {kind}. Received: {name} of type {type(value).__name__}.")


def check_dropout(dropout: Any) -> float:
    """Returns the dropout rate as a float in [0, 1)."""
    _check_number("dropout", dropout)
    if not 0 <= float(dropout) < 1:
        raise ValueError(
            f"`dropout` must be at least 0 and less than 1. Received: dropout={dropout}. "
            "It is the share of weights that is dropped, not a percentage."
        )
    return float(dropout)


def check_seed(seed: Any) -> int | None:
    """Returns the seed as an int, or None."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral)):
        raise TypeError(f"`seed` must be an integer or None. Received: seed of type {type(seed).__name__}.")
    return None if seed is None else int(seed)


def check_scale(scale: Any) -> float | None:
    """Returns the scale of a dot product as a finite float, or None."""
    if scale is None:
        return None
    _check_number("scale", scale, "a number or None")
    if not math.isfinite(scale):
        raise ValueError(f"`scale` must be finite. Received: scale={scale}. Leave it None for 1/sqrt(D).")
    return float(scale)


def check_positive(name: str, value: Any) -> float:
    """Returns `value` as a finite float above 0."""
    _check_number(name, value)
    if not 0 < float(value) < math.inf:
        raise ValueError(f"`{name}` must be finite and above 0. Received: {name}={value}.")
    return float(value)


def check_window(window: Any) -> Window | None:
    """Returns the window as a pair of integers of at least 0 or None, or None."""
    if window is None:
        return None
    bounds = tuple(window) if isinstance(window, list | tuple) else ()
    are_integers = all(
        bound is None or (isinstance(bound, Integral) and not isinstance(bound, bool)) for bound in bounds
    )
    if len(bounds) != 2 or not are_integers or any(bound is not None and bound < 0 for bound in bounds):
        raise ValueError(
            "`window` must be a pair (left, right): how many keys before and after its own position a query sees, "
            f"each an integer of at least 0, or None for all of them. Received: window={window!r}."
        )
    left, right = (None if bound is None else int(bound) for bound in bounds)
    return left, right


def check_positive_integer(name: str, value: Any) -> int:
    """Returns `value` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be an integer. Received: {name} of type {type(value).__name__}.")
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Returns `value` as a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False. Received: {name} of type {type(value).__name__}.")
    return value


def check_switch(name: str, value: Any) -> bool:
    """Returns an argument of a call as a bool: None is False, and 0, 1 and the tensor of `numpy.True_` are taken."""
    if value is None:
        return False
    is_boolean = hasattr(value, "dtype") and dtype_of(value) == "bool" and len(value.shape) == 0
    if not is_boolean and not (isinstance(value, Integral) and value in (0, 1)):
        raise TypeError(f"`{name}` must be True or False. Received: {name} of type {type(value).__name__}.")
    return bool(value)


def check_block_size(name: str, value: Any) -> Any:
    """Returns `value` as an int of at least 1, `"auto"`, or None."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    if isinstance(value, str):
        raise ValueError(f'`{name}` must be an integer, "auto" or None. Received: {name}={value!r}.')
    return check_positive_integer(name, value)
