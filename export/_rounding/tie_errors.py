"""Errors of perturbed runs, separate for rows in which rounding flips an integer or boolean output.

If two scores are equal up to rounding, both choices are correct (a tie), and in a loop all later outputs of the row
depend on the choice. A row has a flipped choice if one of its integer or boolean outputs differs from the unperturbed
run. Errors of floats in such a row above MIN_TIE_ERROR_SHARE * scale, or above their limits in runs with larger
perturbations, are tie errors. The limits of these floats become max(limit, TIE_SAFETY_FACTOR * tie error); all others
stay. An integer or boolean that changed in any run is a tie itself, and may have any value.
"""

import numpy as np

from .._format.compare import scale_of
from .._format.names import Arrays

# Shares of the scale. A smaller one takes rounding errors for tie errors, a larger one tie errors for rounding errors.
MIN_TIE_ERROR_SHARE = 1e-2
MIN_SWITCHED_KEY_ERROR_SHARE = 0.25  # rounding errors are smaller
TIE_SAFETY_FACTOR = 4  # a third choice may be flipped after the second


class ObservedErrors:
    """Largest errors of the outputs of one golden case over several perturbed runs.

    Attributes:
        errors: An array of the shape of each output, by name. For floats the largest absolute error that is not
            attributed to a flipped choice, for other dtypes True if a run returned a different value.
        tie_errors: The largest absolute errors of floats that are attributed to flipped choices.
    """

    def __init__(self, expected: Arrays) -> None:
        """Start with errors of 0 from `expected`, the outputs of an unperturbed run."""
        self._expected = expected
        self.errors = {name: _create_zero_errors(array) for name, array in expected.items()}
        self.tie_errors = {name: _create_zero_errors(array) for name, array in expected.items()}
        self._thresholds = {
            name: MIN_TIE_ERROR_SHARE * scale_of(array.astype(np.float64))
            for name, array in expected.items()
            if array.dtype.kind == "f"
        }

    def record(self, outputs: Arrays, limits: Arrays | None = None) -> None:
        """Record the outputs of a perturbed run; with `limits`, of a perturbation that is larger than rounding.

        With `limits`, only tie errors above these limits are recorded.
        """
        flipped_rows = _find_flipped_rows(self._expected, outputs)
        for name, array in self._expected.items():
            if outputs[name].shape != array.shape:
                continue  # the shape depends on values, as the number of positive elements
            if array.dtype.kind != "f":
                np.logical_or(self.errors[name], outputs[name] != array, out=self.errors[name])
                continue
            error = compute_abs_error(array, outputs[name])
            is_tie = flipped_rows[name] & (error > (self._thresholds if limits is None else limits)[name])
            np.maximum(self.tie_errors[name], error, out=self.tie_errors[name], where=is_tie)
            if limits is None:
                np.maximum(self.errors[name], error, out=self.errors[name], where=~is_tie)

    def record_switched_keys(self, outputs: Arrays) -> None:
        """Record errors that only attention to a different key can cause, as errors of ties."""
        for name, array in self._expected.items():
            if array.dtype.kind == "f" and outputs[name].shape == array.shape:
                error = compute_abs_error(array, outputs[name])
                is_switched = error > MIN_SWITCHED_KEY_ERROR_SHARE * scale_of(array.astype(np.float64))
                np.maximum(self.tie_errors[name], error, out=self.tie_errors[name], where=is_switched)

    def widen(self, limits: Arrays) -> Arrays:
        """Return rounding limits widened by the errors of flipped choices; for other dtypes True marks a tie."""
        return {
            name: np.asarray(
                np.maximum(limit, TIE_SAFETY_FACTOR * self.tie_errors[name])
                if self._expected[name].dtype.kind == "f"
                else limit | self.errors[name]
            )
            for name, limit in limits.items()
        }


def compute_abs_error(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return the absolute difference of two float arrays of equal shape; 0 for elements with NaN or infinity."""
    with np.errstate(invalid="ignore"):
        error = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
    return np.where(np.isfinite(error), error, 0.0)


def _create_zero_errors(array: np.ndarray) -> np.ndarray:
    return np.zeros(array.shape, np.float64 if array.dtype.kind == "f" else bool)


def _find_flipped_rows(expected: Arrays, outputs: Arrays) -> dict[str, np.ndarray]:
    """Return masks, by float output, of the rows in which an integer or boolean output differs.

    A mask has shape (B, 1, ..., 1), or () if no integer or boolean output has B rows. A scalar counts for all rows.
    """
    rows: dict[int, np.ndarray] = {}
    is_any_scalar_flipped = False
    for name, array in expected.items():
        if array.dtype.kind == "f" or outputs[name].shape != array.shape:
            continue
        is_different = outputs[name] != array
        if array.ndim == 0:
            is_any_scalar_flipped |= bool(is_different)
        else:
            rows[len(array)] = rows.get(len(array), False) | is_different.reshape(len(array), -1).any(1)
    floats = {name: array for name, array in expected.items() if array.dtype.kind == "f"}
    return {name: _build_row_mask(array, rows) | is_any_scalar_flipped for name, array in floats.items()}


def _build_row_mask(array: np.ndarray, rows: dict[int, np.ndarray]) -> np.ndarray:
    if array.ndim == 0 or len(array) not in rows:
        return np.zeros((), bool)
    return rows[len(array)].reshape(-1, *[1] * (array.ndim - 1))
