"""Errors of perturbed runs, with those of rows in which rounding flips an integer or boolean output apart.

If rounding decides a choice, as between two equal scores, both outcomes are right. An integer or boolean output shows
that a choice was flipped; the floats of its row may then have any error that a flipped choice was observed to cause.
"""

import numpy as np

from .._format.compare import scale_of
from .._format.names import Arrays

TIE_SCALE = 1e-2  # of the scale of a float: a smaller error in a row with a flipped choice counts as rounding
SWITCHED_SCALE = 0.25  # of the scale of a float: rounding causes no such error, attention to another key does
TIE_MULTIPLE = 4  # of the largest error that a flipped choice caused: after it a third choice may be flipped


class ObservedErrors:
    """Largest errors of the outputs of one golden case over several perturbed runs.

    Attributes:
        errors: By output an array of its shape: of floats the largest absolute error without a flipped choice, of other
            dtypes True where a run gave another value.
        tie_errors: The same of floats in rows with a flipped choice.
    """

    def __init__(self, expected: Arrays) -> None:
        """Start without errors from `expected`, the outputs of an unperturbed run."""
        self._expected = expected
        self.errors = {name: _no_errors(array) for name, array in expected.items()}
        self.tie_errors = {name: _no_errors(array) for name, array in expected.items()}
        self._thresholds = {
            name: TIE_SCALE * scale_of(array.astype(np.float64))
            for name, array in expected.items()
            if array.dtype.kind == "f"
        }

    def record(self, outputs: Arrays, limits: Arrays | None = None) -> None:
        """Record the outputs of a perturbed run.

        Args:
            outputs: Outputs of the run.
            limits: Rounding limits, if the perturbation exceeds rounding: of floats only errors beyond these limits are
                recorded then, in rows with a flipped choice.
        """
        flipped = _rows_with_flipped_choice(self._expected, outputs)
        for name, array in self._expected.items():
            if outputs[name].shape != array.shape:
                continue  # as many rows as there are positive numbers, for example
            if array.dtype.kind != "f":
                np.logical_or(self.errors[name], outputs[name] != array, out=self.errors[name])
                continue
            error = abs_error(array, outputs[name])
            is_tie = flipped[name] & (error > (self._thresholds if limits is None else limits)[name])
            np.maximum(self.tie_errors[name], error, out=self.tie_errors[name], where=is_tie)
            if limits is None:
                np.maximum(self.errors[name], error, out=self.errors[name], where=~is_tie)

    def record_switched_keys(self, outputs: Arrays) -> None:
        """Record floats whose errors are so large that attention has chosen another key."""
        for name, array in self._expected.items():
            if array.dtype.kind == "f" and outputs[name].shape == array.shape:
                error = abs_error(array, outputs[name])
                is_switched = error > SWITCHED_SCALE * scale_of(array.astype(np.float64))
                np.maximum(self.tie_errors[name], error, out=self.tie_errors[name], where=is_switched)

    def widened(self, limits: Arrays) -> Arrays:
        """Return rounding limits widened by the errors of flipped choices, and for other dtypes by all errors."""
        return {
            name: np.asarray(
                np.maximum(limit, TIE_MULTIPLE * self.tie_errors[name])
                if self._expected[name].dtype.kind == "f"
                else limit | self.errors[name]
            )
            for name, limit in limits.items()
        }


def abs_error(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return the absolute difference of two arrays of floats; 0 where one of them is not finite."""
    with np.errstate(invalid="ignore"):
        error = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
    return np.where(np.isfinite(error), error, 0.0)


def _no_errors(array: np.ndarray) -> np.ndarray:
    return np.zeros(array.shape, np.float64 if array.dtype.kind == "f" else bool)


def _rows_with_flipped_choice(expected: Arrays, outputs: Arrays) -> dict[str, np.ndarray]:
    """Return for each output of floats a mask of the rows in which another output, of integers or booleans, differs.

    The mask has shape (B, 1, ..., 1), and () for an output without rows. A differing scalar counts for all rows.
    """
    rows: dict[int, np.ndarray] = {}
    is_any_scalar_flipped = False
    for name, array in expected.items():
        if array.dtype.kind == "f" or outputs[name].shape != array.shape:
            continue
        differs = outputs[name] != array
        if array.ndim == 0:
            is_any_scalar_flipped |= bool(differs)
        else:
            rows[len(array)] = rows.get(len(array), False) | differs.reshape(len(array), -1).any(1)
    floats = {name: array for name, array in expected.items() if array.dtype.kind == "f"}
    return {name: _mask_of_rows(array, rows) | is_any_scalar_flipped for name, array in floats.items()}


def _mask_of_rows(array: np.ndarray, rows: dict[int, np.ndarray]) -> np.ndarray:
    if array.ndim == 0 or len(array) not in rows:
        return np.zeros((), bool)
    return rows[len(array)].reshape(-1, *[1] * (array.ndim - 1))
