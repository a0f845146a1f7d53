"""Where a file differs on special values: by the value, of which each has a row of its case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .._standalone.verify import Arrays, Case, compare, provider_of
from .special_values import Trial, are_finite


def differing(
    case: Case, trials: Sequence[Trial], actual: Arrays, tolerance: Mapping[str, float], provider: str = "cpu"
) -> tuple[list[Trial], bool]:
    """Return the trials in whose row an output differs, and whether one does in a row without any.

    Args:
        case: The case, with its rounding.
        trials: What is tried in it.
        actual: What came.
        tolerance: As in `verify.compare`.
        provider: Where it ran.
    """
    rows = {trial.row for trial in trials}
    wrong: set[int] = set()
    actual = _without_spread(case, actual)
    for name, expected in case.outputs.items():
        if _same(case, actual, name, slice(None), tolerance, provider):
            continue
        found = actual.get(name)
        if found is None or found.shape != expected.shape or not _has_rows(expected, case, trials):
            wrong |= rows  # it has no rows: which value it was, does not show
        else:
            each = (slice(row, row + 1) for row in range(len(expected)))
            wrong |= {part.start for part in each if not _same(case, actual, name, part, tolerance, provider)}
    return [trial for trial in trials if trial.row in wrong], bool(wrong - rows)


def apart(case: Case, trials: Sequence[Trial]) -> tuple[Case, Callable[[Arrays], Arrays]]:
    """Return a case with those rows alone in which nothing is tried, and what takes them of outputs.

    Outputs without rows are left out, and rows in which Keras itself lets infinities or NaN of others in.
    """
    outputs = {name: array for name, array in case.outputs.items() if _has_rows(array, case, trials)}
    free = {*range(len(next(iter(outputs.values()), ())))} - {trial.row for trial in trials}
    rows = [row for row in sorted(free) if are_finite({name: array[row : row + 1] for name, array in outputs.items()})]

    def taken(arrays: Mapping[str, np.ndarray]) -> Arrays:
        return {name: arrays[name][rows] for name in outputs if name in arrays and arrays[name].ndim}

    return Case(case.name, {}, taken(outputs), taken(case.rounding)), taken


def _without_spread(case: Case, actual: Arrays) -> Arrays:
    """Return outputs without the NaN that goes further in a row than Keras's own.

    How far it goes hangs on TensorFlow's kernels: a softmax of one NaN is NaN everywhere on one processor, and 0 beside
    it on another. A NaN that is missing, or in a row of which Keras gives numbers alone, stays.
    """
    found = dict(actual)
    for name, expected in case.outputs.items():
        if name in found and found[name].shape == expected.shape and expected.dtype.kind == "f" and expected.size:
            beside = np.isnan(expected).any(axis=tuple(range(1, expected.ndim)), keepdims=True)
            found[name] = np.where(beside & np.isnan(found[name]), expected, found[name])
    return found


def _has_rows(array: np.ndarray, case: Case, trials: Sequence[Trial]) -> bool:
    """Tell whether an output has a row for each of a batch, with one in which nothing is tried."""
    return bool(trials) and array.ndim > 0 and trials[0].row > 0 and len(array) == len(case.inputs[trials[0].input])


def _same(case: Case, actual: Arrays, name: str, part: slice, tolerance: Mapping[str, float], provider: str) -> bool:
    """Tell whether some rows of an output agree, or an output without any."""
    found = {} if name not in actual else {name: _part(actual[name], part)}
    limits = {name: _part(case.rounding[name], part)} if name in case.rounding else {}
    some = Case(case.name, {}, {name: _part(case.outputs[name], part)}, limits)
    return all(row["passed"] for row in compare(some, found, tolerance, provider_of(provider).lenience))


def _part(array: np.ndarray, part: slice) -> np.ndarray:
    return array[part] if array.ndim else array
