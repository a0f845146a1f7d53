"""Find input axes of KV caches that the model appends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._format.names import Case
from .dynamic_axes import BATCH, Shapes, named_axes

EMPTY_CACHE = "empty cache"


def growing_axes(shapes: Shapes, cases: Sequence[Case]) -> set[str]:
    """Return the names of axes along which an output is an input with more appended, in every case.

    Args:
        shapes: Shape of every input; a string names a dynamic axis.
        cases: Golden cases.
    """
    return {symbol for axis, symbol in named_axes(shapes) if symbol != BATCH and _grows(*axis, cases)}


def _grows(name: str, axis: int, cases: Sequence[Case]) -> bool:
    def is_multiple(output: str) -> bool:
        """Return True if the appended part is as long as the input in every case, as where two inputs are joined."""
        return all(case.outputs[output].shape[axis] % case.inputs[name].shape[axis] == 0 for case in cases)

    return any(
        all(_appends(case, name, output, axis) for case in cases) and not is_multiple(output)
        for output in cases[0].outputs
    )


def _appends(case: Case, name: str, output: str, axis: int) -> bool:
    """Tell whether an output begins with an input, along an axis on which it is longer."""
    before, after = case.inputs[name], case.outputs[output]
    if before.ndim != after.ndim or before.dtype != after.dtype or before.shape[axis] >= after.shape[axis]:
        return False
    begin = np.take(after, np.arange(before.shape[axis]), axis)
    return np.array_equal(before, begin, equal_nan=before.dtype.kind == "f")
