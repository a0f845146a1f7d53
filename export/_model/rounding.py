"""How far rounding alone moves a model's outputs: the golden cases with inputs and weights moved in their last place.

Each further digit of a float32 is lost somewhere on the way, and how much of it arrives at an output only the model
knows: a difference of large numbers loses nearly all digits, a saturated sigmoid hides everything. To move what goes in
by one unit in the last place draws all roundings on the way anew, those of sums and functions too, so that the answers
differ by what no exporter and no machine can be held to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from .._standalone.verify import Arrays, Case, scale_of

RUNS = 3  # how often everything is moved
TIES = 10  # how often, for outputs that are integers or booleans, which rounding must hit to be seen
MULTIPLE = 16  # of what was seen: a few draws do not find the largest
FLOOR = 4  # units in the last place of what stands beside a number, of which onnxruntime's functions are off by 1 to 2

Outputs = Callable[[Arrays], Arrays]


def with_rounding(model: keras.Model, outputs: Outputs, cases: Sequence[Case]) -> list[Case]:
    """Return golden cases with their rounding.

    Args:
        model: Whose weights are moved, while its outputs are taken; they are not changed.
        outputs: Runs the model.
        cases: Golden cases; what they say of rounding is not read.
    """
    rng = np.random.default_rng(0)
    seen = [{name: np.zeros(array.shape, _sized(array)) for name, array in case.outputs.items()} for case in cases]
    exact = any(array.dtype.kind != "f" for array in cases[0].outputs.values())
    for units in (*[1] * RUNS, *[MULTIPLE] * (TIES if exact else 0)):
        with moved_weights(model, units, rng):
            for case, found in zip(cases, seen, strict=True):
                moved = outputs({name: _moved_input(array, units, rng) for name, array in case.inputs.items()})
                for name, expected in case.outputs.items():
                    if expected.dtype.kind != "f":
                        found[name] |= moved[name] != expected
                    elif units == 1:
                        found[name] = np.maximum(found[name], _difference(expected, moved[name]))
    return [
        case._replace(rounding={name: _limits(case.outputs[name], found[name]) for name in case.outputs})
        for case, found in zip(cases, seen, strict=True)
    ]


@contextmanager
def moved_weights(model: keras.Model, units: float, rng: np.random.Generator) -> Iterator[None]:
    """Let a model compute, within the context, with weights that are moved by so many units in the last place."""
    values = []
    for variable in model.weights:
        array = np.asarray(keras.ops.convert_to_numpy(variable.value))
        if array.dtype.kind == "f":
            values.append((variable, keras.ops.convert_to_tensor(_moved(array, units, rng), variable.dtype)))
    with keras.StatelessScope(state_mapping=values):
        yield


def _moved_input(array: np.ndarray, units: float, rng: np.random.Generator) -> np.ndarray:
    """Return an input moved, but for one of whole numbers alone: those are ids or a mask, and exact."""
    return array if np.array_equal(array, np.rint(array)) else _moved(array, units, rng)


def _moved(array: np.ndarray, units: float, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    signs = rng.integers(0, 2, array.shape) * 2 - 1
    with np.errstate(over="ignore", invalid="ignore"):
        return (array * (1 + signs * units * np.finfo(array.dtype).eps)).astype(array.dtype)


def _sized(array: np.ndarray) -> Any:
    return np.float64 if array.dtype.kind == "f" else bool


def _difference(expected: np.ndarray, moved: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        found = np.abs(expected.astype(np.float64) - moved.astype(np.float64))
    return np.where(np.isfinite(found), found, 0.0)


def _limits(expected: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return what rounding may do to each number: what it was seen to do to it, or to most of its row and channel."""
    if expected.dtype.kind != "f" or expected.size == 0:
        return seen
    flat = seen.reshape(-1, expected.shape[-1] if expected.ndim else 1)
    typical = np.minimum(np.median(flat, 0, keepdims=True), np.median(flat, 1, keepdims=True)).reshape(seen.shape)
    floor = FLOOR * float(np.finfo(expected.dtype).eps) * scale_of(expected.astype(np.float64))
    return np.maximum(floor, MULTIPLE * np.maximum(seen, typical))
